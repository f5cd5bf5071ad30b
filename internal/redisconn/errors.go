package redisconn

import (
	"errors"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/admission"
)

// ErrUnknownReply is a reply that no script of this release gives.
var ErrUnknownReply = errors.New("unknown reply")

// NotReady reports the replies by which a Redis serves nobody just now: it loads what it has kept, is a replica or has
// too few of them, cannot write its disk, or is busy. They are no answer to the command, which was not carried out.
func NotReady(err error) bool {
	for _, prefix := range []string{"LOADING ", "BUSY ", "MASTERDOWN ", "READONLY ", "NOREPLICAS ", "MISCONF ", "CLUSTERDOWN ", "TRYAGAIN ", "MOVED ", "ASK ", MovingError, MovingErrorOfValkey} {
		if redis.HasErrorPrefix(err, prefix) {
			return true
		}
	}
	return false
}

// MovingError is how the refusal of a script begins whose slot moves; see movingPreamble.
const MovingError = "Script attempted to access a non local key"

// MovingErrorOfValkey is how Valkey says it from release 9 on.
const MovingErrorOfValkey = "Attempted to access a non local key"

// Unread is the error of a read: it has changed nothing, so whatever kept its reply away, Redis was not available.
func Unread(err error) error {
	if _, ok := errors.AsType[redis.Error](err); ok && !NotReady(err) {
		return err
	}
	if errors.Is(err, redis.ErrClosed) {
		return &closedError{err}
	}
	return errors.Join(admission.ErrUnavailable, err)
}

// closedError is a call of a client that has been closed: nothing was sent, and nothing will be.
type closedError struct{ err error }

func (e *closedError) Error() string { return admission.ErrUnavailable.Error() + ": " + e.err.Error() }

func (e *closedError) Unwrap() []error { return []error{admission.ErrUnavailable, e.err} }

// Closed implements what store.Closed asks.
func (e *closedError) Closed() bool { return true }

// IsNil reports whether Redis answered that there is nothing.
func IsNil(err error) bool { return err == redis.Nil } //nolint:errorlint // go-redis returns it bare.
