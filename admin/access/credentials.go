package access

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"
)

// ErrUnauthenticated matches the error of every call without a valid credential, a *RefusedError.
var ErrUnauthenticated = errors.New("no valid credential")

// CredentialError is a credential that is not taken. Its text is the same for all; Reason is for the log alone.
type CredentialError struct{ Reason error }

// Error says no more than ErrUnauthenticated.
func (e *CredentialError) Error() string { return ErrUnauthenticated.Error() }

// Is makes it match ErrUnauthenticated.
func (e *CredentialError) Is(target error) bool { return target == ErrUnauthenticated }

// Credentials are those that a server takes. Either part may be nil. They never change: a server is handed others when
// the files have changed.
type Credentials struct {
	Keys   *Keys
	Tokens *TokenVerifier
}

// None reports whether nobody can have a credential.
func (c Credentials) None() bool { return c.Keys.Len() == 0 && c.Tokens == nil }

// String says what is taken, without a secret.
func (c Credentials) String() string {
	text := fmt.Sprintf("%d keys", c.Keys.Len())
	if c.Tokens != nil {
		text += fmt.Sprintf(", tokens of %s for %s by %s", c.Tokens.config.Issuer, c.Tokens.config.Audience, strings.Join(c.Tokens.algorithms(), " and "))
	}
	return text
}

var (
	errNoHeader   = errors.New("no Authorization header")
	errTwoHeaders = errors.New("several Authorization headers")
	errNoBearer   = errors.New("not a bearer credential")
)

// Authenticate returns who sent a request with these headers, or a *RefusedError.
func (c Credentials) Authenticate(header http.Header) (Principal, error) {
	who, err := c.authenticate(header)
	if err != nil {
		return Principal{}, &CredentialError{Reason: err}
	}
	return who, nil
}

func (c Credentials) authenticate(header http.Header) (Principal, error) {
	values := header["Authorization"]
	switch len(values) {
	case 0:
		return Principal{}, errNoHeader
	case 1:
	default:
		return Principal{}, errTwoHeaders
	}
	scheme, credential, _ := strings.Cut(values[0], " ")
	credential = strings.TrimSpace(credential)
	if !strings.EqualFold(scheme, "bearer") || credential == "" {
		return Principal{}, errNoBearer
	}
	if strings.HasPrefix(credential, keyPrefix) {
		return c.Keys.find(credential, time.Now())
	}
	return c.Tokens.verify(credential)
}
