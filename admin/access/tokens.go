package access

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/lestrrat-go/jwx/v3/jwa"
	"github.com/lestrrat-go/jwx/v3/jwk"
	"github.com/lestrrat-go/jwx/v3/jws"
	"github.com/lestrrat-go/jwx/v3/jwt"

	"github.com/headgate/headgate/admission"
)

// The claims of a token that say what it is for, beside aud, iss, exp and nbf.
const (
	// RoleClaim is one of RoleNames.
	RoleClaim = "headgate_role"
	// TenantClaim binds the token to a tenant; without it the token is for all.
	TenantClaim = "headgate_tenant"
)

// Bounds of the keys that sign tokens, and of what is taken.
const (
	minSecretBytes = 32
	minRSABits     = 2048
	// maxToken is the longest token that is looked at, in bytes.
	maxToken = 8 << 10
	// MaxLeeway is the largest TokenConfig.Leeway.
	MaxLeeway = 5 * time.Minute

	DefaultMaxLife = 24 * time.Hour
	MinMaxLife     = time.Minute
	MaxMaxLife     = 8760 * time.Hour
)

// TokenConfig says which tokens are taken.
type TokenConfig struct {
	// JWKS is a JSON Web Key Set. Each key must have a kid and an alg, HS256, RS256 or EdDSA: a token is verified by the
	// key that it names, with this algorithm and no other. The public parts are enough for the latter two.
	JWKS []byte
	// Issuer and Audience must be those of the token; both are required.
	Issuer, Audience string
	// Leeway is by how much the issuer's clock may be off, up to MaxLeeway.
	Leeway time.Duration
	// MaxLife is the longest life of a token, MinMaxLife to MaxMaxLife; zero means DefaultMaxLife. It is the time from iat, if that is
	// there, and from now to exp: what has leaked is of no use after it.
	MaxLife time.Duration
}

// TokenVerifier verifies tokens. It never changes, so several goroutines may use it.
type TokenVerifier struct {
	config TokenConfig
	set    jwk.Set
}

// NewTokens returns the verifier, or every fault of the config at once. No error shows a key.
func NewTokens(config TokenConfig) (*TokenVerifier, error) {
	var bad []error
	if config.Issuer == "" {
		bad = append(bad, &admission.FieldError{Field: "issuer", Value: `""`, Allowed: "the iss of the tokens that are taken"})
	}
	if config.Audience == "" {
		bad = append(bad, &admission.FieldError{Field: "audience", Value: `""`, Allowed: "the aud of the tokens that are taken"})
	}
	if config.Leeway < 0 || config.Leeway > MaxLeeway {
		bad = append(bad, &admission.FieldError{Field: "leeway", Value: config.Leeway.String(), Allowed: "0 to " + MaxLeeway.String()})
	}
	config.MaxLife = cmp.Or(config.MaxLife, DefaultMaxLife)
	if config.MaxLife < MinMaxLife || config.MaxLife > MaxMaxLife {
		bad = append(bad, &admission.FieldError{Field: "max life", Value: config.MaxLife.String(), Allowed: MinMaxLife.String() + " to " + MaxMaxLife.String()})
	}
	set, err := jwk.Parse(config.JWKS)
	if err != nil {
		bad = append(bad, &admission.FieldError{Field: "jwks", Value: "(not shown)", Allowed: `a JSON Web Key Set, {"keys": [...]}`})
		return nil, errors.Join(bad...)
	}
	if set.Len() == 0 {
		bad = append(bad, &admission.FieldError{Field: "jwks", Value: "no keys", Allowed: "one key or more"})
	}
	seen := map[string]bool{}
	for i := range set.Len() {
		key, _ := set.Key(i)
		id, _ := key.KeyID()
		if err := checkKey(key); err != nil {
			bad = append(bad, fmt.Errorf("jwks key %d (kid %q): %w", i, clip(id), err))
		}
		if seen[id] {
			bad = append(bad, fmt.Errorf("jwks key %d: %w", i, &admission.FieldError{Field: "kid", Value: strconv.Quote(clip(id)), Allowed: "one that no other key has"}))
		}
		seen[id] = true
	}
	if err := errors.Join(bad...); err != nil {
		return nil, err
	}
	return &TokenVerifier{config: config, set: set}, nil
}

// checkKey reports a key that is not bound to one algorithm, or is weak.
func checkKey(key jwk.Key) error {
	var bad []error
	if id, ok := key.KeyID(); !ok || id == "" {
		bad = append(bad, &admission.FieldError{Field: "kid", Value: `""`, Allowed: "the name by which tokens choose the key"})
	}
	alg, _ := key.Algorithm()
	want := map[string]jwa.KeyType{"HS256": jwa.OctetSeq(), "RS256": jwa.RSA(), "EdDSA": jwa.OKP()}
	name := ""
	if alg != nil {
		name = alg.String()
	}
	if kind, ok := want[name]; !ok || kind != key.KeyType() {
		bad = append(bad, &admission.FieldError{Field: "alg", Value: strconv.Quote(name), Allowed: "HS256 of an oct key, RS256 of an RSA key, EdDSA of an OKP key"})
	}
	if use, ok := key.KeyUsage(); ok && use != "sig" {
		bad = append(bad, &admission.FieldError{Field: "use", Value: strconv.Quote(clip(use)), Allowed: "sig, or none"})
	}
	return errors.Join(append(bad, checkStrength(key))...)
}

func checkStrength(key jwk.Key) error {
	switch key := key.(type) {
	case jwk.SymmetricKey:
		if secret, _ := key.Octets(); len(secret) < minSecretBytes {
			return &admission.FieldError{Field: "k", Value: strconv.Itoa(len(secret)) + " bytes", Allowed: strconv.Itoa(minSecretBytes) + " bytes or more"}
		}
	case interface{ N() ([]byte, bool) }: // an RSA key, public or private
		n, _ := key.N()
		if bits := 8 * len(n); bits < minRSABits {
			return &admission.FieldError{Field: "n", Value: strconv.Itoa(bits) + " bits", Allowed: strconv.Itoa(minRSABits) + " bits or more"}
		}
	}
	return nil
}

var (
	errNoTokens  = errors.New("tokens are not taken here")
	errNoSubject = errors.New("sub is null or empty")
	errHeader    = errors.New("not one compact signature with a header")
	errCritical  = errors.New("crit names what is not understood here")
	errAlgorithm = errors.New("alg is another than that of the key")
)

// checkHeader reports a header that the library would take though RFC 7515 does not: one with extensions that have to be understood,
// none of which is (4.1.11), or with another algorithm than the key's, by which the signature is verified all the same.
func (t *TokenVerifier) checkHeader(token string) error {
	message, err := jws.Parse([]byte(token), jws.WithCompact())
	if err != nil {
		return err
	}
	if len(message.Signatures()) != 1 {
		return errHeader
	}
	header := message.Signatures()[0].ProtectedHeaders()
	if header.Has(jws.CriticalKey) {
		return errCritical
	}
	id, _ := header.KeyID()
	key, ok := t.set.LookupKeyID(id)
	if !ok {
		return nil // There is nothing to verify it by, which is said.
	}
	want, _ := key.Algorithm()
	if alg, ok := header.Algorithm(); !ok || want == nil || alg.String() != want.String() {
		return errAlgorithm
	}
	return nil
}

// checkLife reports a token that lives too long.
func (t *TokenVerifier) checkLife(token jwt.Token, expires time.Time) error {
	life := time.Until(expires)
	if issued, ok := token.IssuedAt(); ok {
		life = max(life, expires.Sub(issued))
	}
	if life > t.config.MaxLife+t.config.Leeway {
		return &admission.FieldError{Field: "exp", Value: life.Round(time.Second).String() + " after now or iat", Allowed: "up to " + t.config.MaxLife.String()}
	}
	return nil
}

// verify returns whose token it is. Signature, algorithm, iss, aud, exp and nbf are checked; exp must be there.
func (t *TokenVerifier) verify(token string) (Principal, error) {
	switch {
	case t == nil:
		return Principal{}, errNoTokens
	case len(token) > maxToken:
		return Principal{}, &admission.FieldError{Field: "token", Value: strconv.Itoa(len(token)) + " bytes", Allowed: fmt.Sprintf("up to %d bytes", maxToken)}
	}
	if err := t.checkHeader(token); err != nil {
		return Principal{}, fmt.Errorf("token: %w", err)
	}
	parsed, err := jwt.ParseString(token, jwt.WithKeySet(t.set), jwt.WithIssuer(t.config.Issuer), jwt.WithAudience(t.config.Audience),
		jwt.WithRequiredClaim(jwt.ExpirationKey), jwt.WithRequiredClaim(jwt.SubjectKey), jwt.WithAcceptableSkew(t.config.Leeway))
	if err != nil {
		return Principal{}, fmt.Errorf("token: %w", err)
	}
	subject, _ := parsed.Subject()
	if subject == "" { // It is there, and may be null: the audit would have nobody.
		return Principal{}, fmt.Errorf("token: %w", errNoSubject)
	}
	expires, _ := parsed.Expiration()
	if err := t.checkLife(parsed, expires); err != nil {
		return Principal{}, fmt.Errorf("token: %w", err)
	}
	var role, tenant string
	if err := parsed.Get(RoleClaim, &role); err != nil {
		return Principal{}, fmt.Errorf("token: %w", err)
	}
	// A tenant that cannot be read must not turn into none.
	if parsed.Has(TenantClaim) {
		if err := parsed.Get(TenantClaim, &tenant); err != nil {
			return Principal{}, fmt.Errorf("token: %w", err)
		}
		if err := admission.ValidateTenant(tenant); err != nil {
			return Principal{}, fmt.Errorf("token: %w", err)
		}
	}
	level, err := ParseRole(role)
	if err != nil {
		return Principal{}, fmt.Errorf("token: %w", err)
	}
	return Principal{Name: t.config.Issuer + "/" + subject, Role: level, Tenant: tenant, Expires: expires}, nil
}

// algorithms are those of the keys, for the log.
func (t *TokenVerifier) algorithms() []string {
	var names []string
	for i := range t.set.Len() {
		key, _ := t.set.Key(i)
		if alg, ok := key.Algorithm(); ok && !slices.Contains(names, alg.String()) {
			names = append(names, alg.String())
		}
	}
	return names
}
