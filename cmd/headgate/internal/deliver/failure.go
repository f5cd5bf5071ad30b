package deliver

import (
	"errors"
	"strings"
)

// FailureError is a run that did not end well. Error is for the dead letter and quotes what the receiver said; Brief is for
// logs, which are not to hold what may be a part of the payload.
type FailureError struct {
	brief string
	said  string
	cause error // nil if there is none beneath
}

// Error returns what happened and what the receiver said.
func (f *FailureError) Error() string {
	if f.said == "" {
		return f.brief
	}
	return f.brief + ": " + f.said
}

// Brief returns what happened in words of this program.
func (f *FailureError) Brief() string { return f.brief }

// Unwrap returns the cause, if there is one.
func (f *FailureError) Unwrap() error { return f.cause }

// errTimeout is the cause with which a run ends at Config.Timeout.
var errTimeout = errors.New("it took too long")

// textOf makes text of what a receiver said: valid UTF-8 without spaces around it.
func textOf(said []byte) string {
	return strings.TrimSpace(strings.ToValidUTF8(string(said), "\uFFFD"))
}
