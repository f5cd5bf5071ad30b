package callback

import (
	"errors"
	"fmt"
	"runtime/debug"
	"strings"
)

// PanicError is a panic of a function.
type PanicError struct {
	Value any
	// Stack begins with the function that panicked.
	Stack string
}

// Error has the stack too.
func (e *PanicError) Error() string { return fmt.Sprintf("panic: %v\n%s", e.Value, e.Stack) }

// errAsked is what no error is.
var errAsked = errors.New("asked")

// Try calls f and returns its error, or its panic as a *PanicError. An error that panics when it is asked what it is, as a nil of its
// own type does, or one that takes all others for its own type, is a panic of f.
func Try(f func() error) (err error) {
	defer func() {
		if value := recover(); value != nil {
			err = &PanicError{value, stack()}
		}
	}()
	if err = f(); err != nil {
		_ = err.Error()
		_, _ = errors.AsType[*PanicError](err)
		_ = errors.Is(err, errAsked)
	}
	return err
}

// stack returns the stack of the panic that is under way. The frames above it are the runtime's and this package's; a kept text has no
// room for them.
func stack() string {
	text := string(debug.Stack())
	if _, below, ok := strings.Cut(text, "\npanic("); ok {
		if _, below, ok = strings.Cut(below, "\n"); ok {
			_, text, _ = strings.Cut(below, "\n")
		}
	}
	return text
}
