package httplimit

import (
	"crypto/sha256"
	"encoding/hex"
	"net/http"
	"strings"

	"github.com/headgate/headgate/admission"
)

// KeyFunc names something of a request; "" says that the request has none of it. What it returns is used as the name of a tenant or a queue:
// 1-128 bytes of [A-Za-z0-9._@/-].
type KeyFunc func(*http.Request) string

// Anonymous is the tenant of all requests that have no key.
const Anonymous = "anonymous"

// What the names begin with that are made here.
const (
	hashPrefix    = "key-"
	addressPrefix = "ip-"
)

// First returns the first of some keys that a request has.
func First(keys ...KeyFunc) KeyFunc {
	return func(r *http.Request) string {
		for _, key := range keys {
			if name := key(r); name != "" {
				return name
			}
		}
		return ""
	}
}

// Fixed is the same name for every request.
func Fixed(name string) KeyFunc { return func(*http.Request) string { return name } }

// FromHeader is the KeyName of a header's first value, such as that of X-API-Key: never the value itself, so a header with a tenant's own name in it,
// which whatever authenticates has set, is for FromUser. Whether the value is a key that somebody was given is for
// others to check.
func FromHeader(name string) KeyFunc {
	field, names := http.CanonicalHeaderKey(name), newMemo[digest, string]()
	return func(r *http.Request) string {
		if values := r.Header[field]; len(values) > 0 && values[0] != "" {
			return hashed(names, values[0])
		}
		return ""
	}
}

// FromUser is the name that user returns, as whatever authenticates has found it. One that is no name of a tenant, or looks like one that
// is made here, becomes its KeyName.
func FromUser(user func(*http.Request) string) KeyFunc {
	names := newMemo[digest, string]()
	return func(r *http.Request) string {
		name := user(r)
		made := strings.HasPrefix(name, hashPrefix) || strings.HasPrefix(name, addressPrefix) || name == Anonymous
		if name == "" || !made && admission.ValidateTenant(name) == nil {
			return name
		}
		return hashed(names, name)
	}
}

// digest is the first half of a SHA-256.
type digest [sha256.Size / 2]byte

func digestOf(value string) digest {
	var room [256]byte // Of a constant size, so that most values are not copied to the heap.
	sum := sha256.Sum256(append(room[:0], value...))
	return digest(sum[:])
}

func (d digest) name() string { return hashPrefix + hex.EncodeToString(d[:]) }

// hashed is KeyName with a memory that holds no secrets.
func hashed(names *memo[digest, string], value string) string {
	d := digestOf(value)
	name, ok := names.get(d)
	if !ok {
		name = d.name()
		names.put(d, name)
	}
	return name
}

// KeyName is the tenant's name for a secret: "key-" and the first 32 hexadecimal digits of its SHA-256, for a policy that is to name it.
// In a shell that is printf %s "$KEY" | sha256sum | cut -c1-32.
func KeyName(value string) string { return digestOf(value).name() }

// Unrouted is the queue of all requests that no route takes.
const Unrouted = "unrouted"

// FromRoute is the RouteName of the pattern that http.ServeMux has found, never the path. Where the filter stands before the mux, which
// has not looked yet, it asks that one, for some allocations; nil is for filters around handlers that are registered at a mux, and
// for routers that set http.Request.Pattern.
func FromRoute(mux *http.ServeMux) KeyFunc {
	names := newMemo[string, string]()
	return func(r *http.Request) string {
		pattern := r.Pattern
		if pattern == "" && mux != nil {
			_, pattern = mux.Handler(r)
		}
		if pattern == "" {
			return Unrouted
		}
		name, ok := names.get(pattern)
		if !ok {
			name = RouteName(pattern)
			names.put(pattern, name)
		}
		return name
	}
}

// RouteName makes a queue's name of a router's pattern: braces become "_", what else no name may have "-", so that "GET /orders/{id}" is
// "GET-/orders/_id_". Of a pattern above 128 bytes it is the first 95, and a hash of the whole. Patterns that differ in such
// bytes alone share a name. "" is Unrouted.
func RouteName(pattern string) string {
	if pattern == "" {
		return Unrouted
	}
	name := strings.Map(func(c rune) rune {
		switch {
		case c == '{' || c == '}':
			return '_'
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9', strings.ContainsRune("._@/-", c):
			return c
		}
		return '-'
	}, pattern)
	if len(name) > admission.MaxNameLength {
		d := digestOf(pattern)
		name = name[:admission.MaxNameLength-1-2*len(d)] + "-" + hex.EncodeToString(d[:])
	}
	return name
}
