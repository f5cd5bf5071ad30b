package access_test

import (
	"crypto/ed25519"
	"crypto/rand"
	"crypto/rsa"
	"encoding/base64"
	"encoding/json"
	"errors"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/lestrrat-go/jwx/v3/jwa"
	"github.com/lestrrat-go/jwx/v3/jwk"
	"github.com/lestrrat-go/jwx/v3/jwt"

	"github.com/headgate/headgate/admin/access"
	"github.com/headgate/headgate/admission"
)

func must(tb testing.TB, err error) {
	tb.Helper()
	if err != nil {
		tb.Fatal(err)
	}
}

func bearer(credential string) http.Header {
	return http.Header{"Authorization": {"Bearer " + credential}}
}

func TestKeysAreTakenUntilTheyEnd(t *testing.T) {
	t.Parallel()
	ci := access.Principal{Name: "ci", Role: access.Operator, Tenant: "acme", Expires: time.Now().Add(time.Hour).UTC().Truncate(time.Second)}
	old, oldLine, err := access.NewKey(ci)
	must(t, err)
	fresh, freshLine, err := access.NewKey(ci)
	must(t, err)
	ended, endedLine, err := access.NewKey(access.Principal{Name: "gone", Role: access.Admin, Expires: time.Now().Add(-time.Second)})
	must(t, err)
	if strings.Contains(oldLine, old) || !strings.HasPrefix(old, "hgk_") || len(old) != 47 {
		t.Fatalf("%q in %q", old, oldLine)
	}
	keys, err := access.ParseKeys("# two of one name rotate without a gap\n" + oldLine + "\n" + freshLine + " # new\n\n" + endedLine)
	must(t, err)
	c := access.Credentials{Keys: keys}
	for _, key := range []string{old, fresh} {
		if who, err := c.Authenticate(bearer(key)); err != nil || who != ci {
			t.Errorf("%+v, %v", who, err)
		}
	}
	for name, header := range map[string]http.Header{
		"none": {}, "ended": bearer(ended), "of a byte less": bearer(old[:len(old)-1]), "unknown": bearer("hgk_" + strings.Repeat("A", 43)),
		"basic": {"Authorization": {"Basic " + old}}, "empty": {"Authorization": {"Bearer "}}, "two": {"Authorization": {"Bearer " + old, "Bearer " + old}},
		"the hash": bearer(strings.Fields(oldLine)[3]), "a token where none are taken": bearer("a.b.c"),
	} {
		if who, err := c.Authenticate(header); !errors.Is(err, access.ErrUnauthenticated) || who != (access.Principal{}) {
			t.Errorf("%s: %+v, %v", name, who, err)
		} else if err.Error() != "no valid credential" {
			t.Errorf("%s is told: %v", name, err)
		}
	}
}

func TestEveryBadLineOfAKeysFileIsToldAndNoHashShown(t *testing.T) {
	t.Parallel()
	hash := "sha256:" + strings.Repeat("ab", 32)
	_, err := access.ParseKeys(strings.Join([]string{
		"ci operator * " + hash, "ci root * " + hash, "c i operator", "ci viewer global " + hash, "ci viewer a:b " + hash, "ci viewer * md5:" + strings.Repeat("cd", 32),
		"ci viewer * " + hash + " until=tomorrow", "c\x00 viewer * " + hash,
	}, "\n"))
	if err == nil {
		t.Fatal("no error")
	}
	for line := 2; line <= 8; line++ {
		if want := "keys line " + string(rune('0'+line)); !strings.Contains(err.Error(), want) {
			t.Errorf("%s is not told: %v", want, err)
		}
	}
	if text := err.Error(); strings.Contains(text, "line 1:") || strings.Contains(text, "abab") || strings.Contains(text, "cdcd") {
		t.Error(text)
	}
	for _, who := range []access.Principal{{}, {Name: "x"}, {Name: "x", Role: access.Anyone}, {Name: "x", Role: access.Admin, Tenant: "global"}, {Name: "a b", Role: access.Admin}} {
		if _, _, err := access.NewKey(who); !errors.Is(err, admission.ErrInvalid) {
			t.Errorf("a key for %+v: %v", who, err)
		}
	}
}

func TestRolesIncludeThoseBefore(t *testing.T) {
	t.Parallel()
	for role, others := range map[access.Role][]access.Role{
		access.Producer: {access.Anyone, access.Producer}, access.Worker: {access.Anyone, access.Worker}, access.Viewer: {access.Anyone, access.Viewer},
		access.Operator: {access.Anyone, access.Viewer, access.Operator, access.Producer, access.Worker},
	} {
		for other := access.Anyone; other <= access.Worker; other++ {
			if got := (access.Principal{Role: role}).May(other); got != slices.Contains(others, other) {
				t.Errorf("%s may what is for %s: %t", role, other, got)
			}
		}
	}
	order := []access.Role{access.Anyone, access.Viewer, access.Operator, access.Admin}
	for i, role := range order {
		for j, other := range order {
			if got := (access.Principal{Role: role}).May(other); got != (i >= j) {
				t.Errorf("%s may what is for %s: %t", role, other, got)
			}
		}
	}
	if (access.Principal{Role: access.Admin}).May(0) || (access.Principal{}).May(access.Anyone) {
		t.Error("no role may nothing, and nobody may what is for no role")
	}
}

// issuer signs tokens with a key of each kind.
type issuer struct {
	tb   testing.TB
	keys map[string]jwk.Key // by alg; private
	jwks []byte             // public, but for the shared secret
}

func newIssuer(tb testing.TB) *issuer {
	tb.Helper()
	i := &issuer{tb: tb, keys: map[string]jwk.Key{}}
	private, err := rsa.GenerateKey(rand.Reader, 2048)
	must(tb, err)
	_, edwards, err := ed25519.GenerateKey(rand.Reader)
	must(tb, err)
	secret := make([]byte, 32)
	_, _ = rand.Read(secret)
	set := jwk.NewSet()
	for alg, raw := range map[jwa.SignatureAlgorithm]any{jwa.RS256(): private, jwa.EdDSA(): edwards, jwa.HS256(): secret} {
		key, err := jwk.Import(raw)
		must(tb, err)
		must(tb, key.Set(jwk.KeyIDKey, "k-"+alg.String()))
		must(tb, key.Set(jwk.AlgorithmKey, alg))
		i.keys[alg.String()] = key
		public, err := key.PublicKey()
		must(tb, err)
		must(tb, set.AddKey(public))
	}
	i.jwks, err = json.Marshal(set)
	must(tb, err)
	return i
}

func (i *issuer) tokens() *access.TokenVerifier {
	i.tb.Helper()
	tokens, err := access.NewTokens(access.TokenConfig{JWKS: i.jwks, Issuer: "https://id.example.com", Audience: "headgate"})
	must(i.tb, err)
	return tokens
}

func claims() map[string]any {
	return map[string]any{
		"iss": "https://id.example.com", "aud": "headgate", "sub": "ada", "exp": time.Now().Add(time.Minute).Unix(), "nbf": time.Now().Add(-time.Minute).Unix(),
		access.RoleClaim: "operator", access.TenantClaim: "acme",
	}
}

// sign signs claims by a key and an algorithm; nil values leave a claim out.
func (i *issuer) sign(alg jwa.SignatureAlgorithm, key jwk.Key, all map[string]any) string {
	i.tb.Helper()
	token := jwt.New()
	for name, value := range all {
		if value != nil {
			must(i.tb, token.Set(name, value))
		}
	}
	text, err := jwt.Sign(token, jwt.WithKey(alg, key))
	must(i.tb, err)
	return string(text)
}

func TestTokensOfEachAlgorithmAreTaken(t *testing.T) {
	t.Parallel()
	i := newIssuer(t)
	c := access.Credentials{Tokens: i.tokens()}
	for _, alg := range []jwa.SignatureAlgorithm{jwa.HS256(), jwa.RS256(), jwa.EdDSA()} {
		who, err := c.Authenticate(bearer(i.sign(alg, i.keys[alg.String()], claims())))
		if err != nil || who.Name != "https://id.example.com/ada" || who.Role != access.Operator || who.Tenant != "acme" || who.Expires.IsZero() {
			t.Errorf("%s: %+v, %v", alg, who, err)
		}
	}
	everybody := claims()
	everybody[access.TenantClaim] = nil
	if who, err := c.Authenticate(bearer(i.sign(jwa.EdDSA(), i.keys["EdDSA"], everybody))); err != nil || who.Tenant != "" {
		t.Errorf("without a tenant: %+v, %v", who, err)
	}
	if text := c.String(); strings.Contains(text, "\"k\"") || !strings.Contains(text, "tokens of https://id.example.com for headgate by ") {
		t.Error(text)
	}
}

func TestTokensWithAnythingWrongAreRefused(t *testing.T) {
	t.Parallel()
	i := newIssuer(t)
	c := access.Credentials{Tokens: i.tokens()}
	for claim, values := range map[string][]any{
		"iss": {nil, "https://evil.example.com"}, "aud": {nil, "other"}, "sub": {nil, ""},
		"iat": {time.Now().Add(-25 * time.Hour).Unix()},
		"exp": {nil, time.Now().Add(-time.Second).Unix(), time.Now().Add(25 * time.Hour).Unix()}, "nbf": {time.Now().Add(time.Minute).Unix()},
		access.RoleClaim: {nil, "", "root", "anyone", 7, []string{"admin"}}, access.TenantClaim: {"", "global", "a:b", 7, []string{"acme"}},
	} {
		for _, value := range values {
			all := claims()
			all[claim] = value
			if who, err := c.Authenticate(bearer(i.sign(jwa.EdDSA(), i.keys["EdDSA"], all))); !errors.Is(err, access.ErrUnauthenticated) {
				t.Errorf("%s = %v: %+v, %v", claim, value, who, err)
			}
		}
	}
	if who, err := c.Authenticate(bearer("e30." + strings.Repeat("A", 9000) + ".AA")); !errors.Is(err, access.ErrUnauthenticated) {
		t.Errorf("a token of 9 kB: %+v, %v", who, err)
	}
}

// TestAlgorithmsArePinned: a token is verified with the algorithm of its key, whatever its header says.
func TestAlgorithmsArePinned(t *testing.T) {
	t.Parallel()
	i := newIssuer(t)
	c := access.Credentials{Tokens: i.tokens()}
	public, err := i.keys["RS256"].PublicKey()
	must(t, err)
	text, err := json.Marshal(public)
	must(t, err)
	pem, err := jwk.Pem(public)
	must(t, err)
	_, edwards, err := ed25519.GenerateKey(rand.Reader)
	must(t, err)
	withID := func(raw any, id string) jwk.Key {
		key, err := jwk.Import(raw)
		must(t, err)
		must(t, key.Set(jwk.KeyIDKey, id))
		return key
	}
	unsigned, err := jwt.NewSerializer().Serialize(func() jwt.Token {
		token := jwt.New()
		for name, value := range claims() {
			must(t, token.Set(name, value))
		}
		return token
	}())
	must(t, err)
	good := i.sign(jwa.EdDSA(), i.keys["EdDSA"], claims())
	for name, token := range map[string]string{
		"HS256 by the text of the RSA key": i.sign(jwa.HS256(), withID(text, "k-RS256"), claims()),
		"HS256 by the PEM of the RSA key":  i.sign(jwa.HS256(), withID(pem, "k-RS256"), claims()),
		"HS512 by the shared secret":       i.sign(jwa.HS512(), i.keys["HS256"], claims()),
		"RS512 by the RSA key":             i.sign(jwa.RS512(), i.keys["RS256"], claims()),
		"PS256 by the RSA key":             i.sign(jwa.PS256(), i.keys["RS256"], claims()),
		"EdDSA by another key":             i.sign(jwa.EdDSA(), withID(edwards, "k-EdDSA"), claims()),
		"a key that is not in the set":     i.sign(jwa.EdDSA(), withID(edwards, "k-none"), claims()),
		"none":                             "eyJhbGciOiJub25lIiwia2lkIjoiay1FZERTQSJ9." + strings.Split(good, ".")[1] + ".",
		"no signature at all":              string(unsigned),
		"a changed signature":              good[:len(good)-4] + "AAAA",
		"two parts":                        strings.Join(strings.Split(good, ".")[:2], "."),
	} {
		if who, err := c.Authenticate(bearer(token)); !errors.Is(err, access.ErrUnauthenticated) {
			t.Errorf("%s: %+v, %v", name, who, err)
		}
	}
}

func TestKeysThatAreWeakOrNotBoundToAnAlgorithmAreRefused(t *testing.T) {
	t.Parallel()
	small := `{"kty":"RSA","kid":"a","alg":"RS256","e":"AQAB","n":"` + strings.Repeat("A", 171) + `"}`
	secret := strings.Repeat("A", 43)
	for name, keys := range map[string]string{
		"no set":             `7`,
		"no keys":            `{"keys":[]}`,
		"no kid":             `{"keys":[{"kty":"oct","alg":"HS256","k":"` + secret + `"}]}`,
		"no alg":             `{"keys":[{"kty":"oct","kid":"a","k":"` + secret + `"}]}`,
		"another alg":        `{"keys":[{"kty":"oct","kid":"a","alg":"HS512","k":"` + secret + `"}]}`,
		"alg none":           `{"keys":[{"kty":"oct","kid":"a","alg":"none","k":"` + secret + `"}]}`,
		"alg of other kinds": `{"keys":[{"kty":"oct","kid":"a","alg":"RS256","k":"` + secret + `"}]}`,
		"a short secret":     `{"keys":[{"kty":"oct","kid":"a","alg":"HS256","k":"c2hvcnQ"}]}`,
		"a small modulus":    `{"keys":[` + small + `]}`,
		"for encryption":     `{"keys":[{"kty":"oct","kid":"a","alg":"HS256","use":"enc","k":"` + secret + `"}]}`,
		"one kid twice":      `{"keys":[{"kty":"oct","kid":"a","alg":"HS256","k":"` + secret + `"},{"kty":"oct","kid":"a","alg":"HS256","k":"` + secret + `"}]}`,
	} {
		_, err := access.NewTokens(access.TokenConfig{JWKS: []byte(keys), Issuer: "i", Audience: "a"})
		if !errors.Is(err, admission.ErrInvalid) || strings.Contains(err.Error(), secret[:20]) {
			t.Errorf("%s: %v", name, err)
		}
	}
	_, err := access.NewTokens(access.TokenConfig{JWKS: []byte(`{"keys":[]}`), Leeway: time.Hour})
	for _, want := range []string{"issuer", "audience", "leeway", "jwks"} {
		if err == nil || !strings.Contains(err.Error(), "invalid "+want) {
			t.Errorf("%s is not told: %v", want, err)
		}
	}
}

// TestHeadersAndClaimsThatTheLibraryTakesAreRefused: tokens that are signed well, and say what nobody here understands, or nothing.
func TestHeadersAndClaimsThatTheLibraryTakesAreRefused(t *testing.T) {
	t.Parallel()
	i := newIssuer(t)
	c := access.Credentials{Tokens: i.tokens()}
	var private ed25519.PrivateKey
	must(t, jwk.Export(i.keys["EdDSA"], &private))
	part := func(change, base map[string]any) string {
		all := maps.Clone(base)
		maps.Copy(all, change)
		text, err := json.Marshal(all)
		must(t, err)
		return base64.RawURLEncoding.EncodeToString(text)
	}
	token := func(header, body map[string]any) string {
		text := part(header, map[string]any{"alg": "EdDSA", "kid": "k-EdDSA"}) + "." + part(body, claims())
		return text + "." + base64.RawURLEncoding.EncodeToString(ed25519.Sign(private, []byte(text)))
	}
	if _, err := c.Authenticate(bearer(token(nil, nil))); err != nil {
		t.Fatalf("a plain one: %v", err)
	}
	for name, text := range map[string]string{
		"crit of what is there":     token(map[string]any{"crit": []string{"exp2"}, "exp2": 1}, nil),
		"crit of what is known":     token(map[string]any{"crit": []string{"b64"}, "b64": true}, nil),
		"another algorithm":         token(map[string]any{"alg": "RS256"}, nil),
		"one of a kind":             token(map[string]any{"alg": "HS256"}, nil),
		"none":                      token(map[string]any{"alg": "none"}, nil),
		"nobody":                    token(nil, map[string]any{"sub": nil}),
		"nobody with an empty name": token(nil, map[string]any{"sub": ""}),
	} {
		if who, err := c.Authenticate(bearer(text)); !errors.Is(err, access.ErrUnauthenticated) {
			t.Errorf("%s: %+v, %v", name, who, err)
		}
	}
}

// TestAnEmptyKeysFileMeansNobody: it is how the last key is taken away.
func TestAnEmptyKeysFileMeansNobody(t *testing.T) {
	t.Parallel()
	keys, err := access.ParseKeys("# all are revoked\n\n")
	must(t, err)
	c := access.Credentials{Keys: keys}
	if !c.None() || keys.Len() != 0 {
		t.Errorf("%s", c)
	}
	if who, err := c.Authenticate(bearer("hgk_" + strings.Repeat("A", 43))); !errors.Is(err, access.ErrUnauthenticated) {
		t.Errorf("%+v, %v", who, err)
	}
}

// FuzzCredential: whatever is sent as a credential, it is not taken, and nothing panics.
func FuzzCredential(f *testing.F) {
	i := newIssuer(f)
	_, line, err := access.NewKey(access.Principal{Name: "ci", Role: access.Admin})
	must(f, err)
	keys, err := access.ParseKeys(line)
	must(f, err)
	c := access.Credentials{Keys: keys, Tokens: i.tokens()}
	good := claims()
	good["exp"] = time.Now().Add(-time.Hour).Unix()
	for _, seed := range []string{
		"", "Bearer", "Bearer x", "Bearer hgk_", "Bearer a.b.c", "Bearer eyJhbGciOiJub25lIn0.e30.", "Basic YTpi", `Bearer {"payload":"e30","signatures":[]}`,
		"Bearer " + i.sign(jwa.RS256(), i.keys["RS256"], good), "Bearer " + i.sign(jwa.EdDSA(), i.keys["EdDSA"], good),
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, value string) {
		who, err := c.Authenticate(http.Header{"Authorization": {value}})
		if !errors.Is(err, access.ErrUnauthenticated) || who != (access.Principal{}) {
			t.Errorf("%q is taken for %+v: %v", value, who, err)
		}
	})
}

// FuzzKeysFile: a file that is read has no principal that could not be issued a key.
func FuzzKeysFile(f *testing.F) {
	_, line, err := access.NewKey(access.Principal{Name: "ci", Role: access.Admin, Tenant: "acme", Expires: time.Unix(1_900_000_000, 0)})
	must(f, err)
	f.Add(line)
	f.Add("# nothing\n\n")
	f.Add("a viewer * sha256:" + strings.Repeat("0", 64) + " expires=")
	f.Fuzz(func(t *testing.T, text string) {
		keys, err := access.ParseKeys(text)
		if (err == nil) == (keys == nil) {
			t.Errorf("%q: %v, %v", text, keys, err)
		}
	})
}
