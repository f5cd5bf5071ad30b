package access

import (
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/headgate/headgate/admission"
)

const (
	// keyPrefix begins every key, so that one that leaks is found by scanners.
	keyPrefix = "hgk_"
	// keyBytes is how much of a key is chance.
	keyBytes = 32
	// MaxKeys is the largest number of keys of a file: each call is compared with all of them.
	MaxKeys = 1000
	// unbound stands for no tenant in a line of the file, hashPrefix before the hash, expiresPrefix before the end.
	unbound       = "*"
	hashPrefix    = "sha256:"
	expiresPrefix = "expires="
)

// storedKey is a key as the file holds it.
type storedKey struct {
	hash [sha256.Size]byte
	who  Principal
}

// Keys are the API keys that are valid. Several may have the same name, so that one is replaced without a gap. They never
// change, so several goroutines may use them.
type Keys struct {
	all []storedKey
}

// NewKey makes a key at random and returns it with the line of the keys file that makes it valid. The key itself is kept
// nowhere.
func NewKey(who Principal) (key, line string, err error) {
	if err := who.validate(); err != nil {
		return "", "", err
	}
	secret := make([]byte, keyBytes)
	_, _ = rand.Read(secret) // It never fails.
	key = keyPrefix + base64.RawURLEncoding.EncodeToString(secret)
	hash := sha256.Sum256([]byte(key))
	tenant := unbound
	if who.Tenant != "" {
		tenant = who.Tenant
	}
	line = strings.Join([]string{who.Name, who.Role.String(), tenant, hashPrefix + hex.EncodeToString(hash[:])}, " ")
	if !who.Expires.IsZero() {
		line += " " + expiresPrefix + who.Expires.UTC().Format(time.RFC3339)
	}
	return key, line, nil
}

func (p Principal) validate() error {
	bad := []error{admission.ValidateName("name", p.Name, false)}
	if p.Tenant != "" {
		bad = append(bad, admission.ValidateTenant(p.Tenant))
	}
	_, err := ParseRole(p.Role.String())
	return errors.Join(append(bad, err)...)
}

// ParseKeys reads a keys file: a line a key, "NAME ROLE TENANT sha256:HEX", the tenant * for all, and perhaps
// "expires=2027-01-31T00:00:00Z"; # begins a comment. It reports every bad line at once, and shows no hash.
func ParseKeys(text string) (*Keys, error) {
	keys := &Keys{}
	var bad []error
	number := 0
	for line := range strings.Lines(text) {
		number++
		line, _, _ = strings.Cut(line, "#")
		fields := strings.Fields(line)
		if len(fields) == 0 {
			continue
		}
		key, err := parseKey(fields)
		if err != nil {
			bad = append(bad, fmt.Errorf("keys line %d: %w", number, err))
			continue
		}
		keys.all = append(keys.all, key)
	}
	if len(keys.all) > MaxKeys {
		bad = append(bad, &admission.FieldError{Field: "keys", Value: strconv.Itoa(len(keys.all)), Allowed: fmt.Sprintf("up to %d", MaxKeys)})
	}
	if err := errors.Join(bad...); err != nil {
		return nil, err
	}
	return keys, nil
}

func parseKey(fields []string) (storedKey, error) {
	if len(fields) != 4 && len(fields) != 5 {
		return storedKey{}, &admission.FieldError{Field: "key", Value: fmt.Sprintf("of %d words", len(fields)), Allowed: "NAME ROLE TENANT sha256:HEX, and perhaps expires=TIME; headgate key new prints one"}
	}
	var bad []error
	var key storedKey
	role, err := ParseRole(fields[1])
	bad = append(bad, err)
	key.who = Principal{Name: fields[0], Role: role, Tenant: fields[2]}
	if key.who.Tenant == unbound {
		key.who.Tenant = ""
	}
	if err == nil {
		bad = append(bad, key.who.validate())
	}
	digits, ok := strings.CutPrefix(fields[3], hashPrefix)
	hash, err := hex.DecodeString(digits)
	if !ok || err != nil || len(hash) != sha256.Size {
		bad = append(bad, &admission.FieldError{Field: "hash", Value: "(not shown)", Allowed: "sha256: and 64 hex digits, those of the whole key"})
	}
	copy(key.hash[:], hash)
	if len(fields) == 5 {
		end, ok := strings.CutPrefix(fields[4], expiresPrefix)
		if key.who.Expires, err = time.Parse(time.RFC3339, end); !ok || err != nil {
			bad = append(bad, &admission.FieldError{Field: "end", Value: strconv.Quote(clip(fields[4])), Allowed: "expires= and a time such as 2027-01-31T00:00:00Z"})
		}
	}
	return key, errors.Join(bad...)
}

// Principals returns whose keys they are, a key each, in the order of the file.
func (k *Keys) Principals() []Principal {
	all := make([]Principal, k.Len())
	for i := range all {
		all[i] = k.all[i].who
	}
	return all
}

// Len returns how many keys there are.
func (k *Keys) Len() int {
	if k == nil {
		return 0
	}
	return len(k.all)
}

var (
	errUnknownKey = errors.New("unknown key")
	errExpired    = errors.New("expired")
)

// find returns whose key it is. It takes the same time for every key of a length, known or not.
func (k *Keys) find(key string, now time.Time) (Principal, error) {
	if k == nil {
		return Principal{}, errUnknownKey
	}
	hash := sha256.Sum256([]byte(key))
	at := -1
	for i := range k.all {
		at = subtle.ConstantTimeSelect(subtle.ConstantTimeCompare(hash[:], k.all[i].hash[:]), i, at)
	}
	if at < 0 {
		return Principal{}, errUnknownKey
	}
	who := k.all[at].who
	if !who.Expires.IsZero() && !now.Before(who.Expires) {
		return Principal{}, fmt.Errorf("key %s: %w", who.Name, errExpired)
	}
	return who, nil
}
