package callback_test

import (
	"bytes"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"

	"github.com/rs/zerolog"

	"github.com/headgate/headgate/internal/callback"
)

// nilError panics when it is asked what it says.
type nilError struct{ text string }

func (e *nilError) Error() string { return e.text }

// ownError takes all others for its own type.
type ownError struct{ code int }

func (e *ownError) Error() string { return "own" }

func (e *ownError) Is(other error) bool { return e.code == other.(*ownError).code }

func TestAPanicIsAnErrorThatSaysWhere(t *testing.T) {
	t.Parallel()
	err := callback.Try(func() error { return burst() })
	got, ok := errors.AsType[*callback.PanicError](err)
	if !ok || got.Value != "too much" || !strings.HasPrefix(err.Error(), "panic: too much\n") {
		t.Fatalf("got %v", err)
	}
	if first, _, _ := strings.Cut(got.Stack, "\n"); !strings.Contains(first, "callback_test.burst") {
		t.Errorf("the stack begins with %s", first)
	}
	if err := callback.Try(func() error { return (*nilError)(nil) }); !strings.HasPrefix(err.Error(), "panic: runtime error: invalid memory address") {
		t.Errorf("got %v", err)
	}
	if err := callback.Try(func() error { return fmt.Errorf("wrapped: %w", &ownError{7}) }); !strings.HasPrefix(err.Error(), "panic: interface conversion: ") {
		t.Errorf("got %v", err)
	}
	if err := callback.Try(func() error { return errors.ErrUnsupported }); !errors.Is(err, errors.ErrUnsupported) {
		t.Errorf("got %v", err)
	}
	if err := callback.Try(func() error { return nil }); err != nil {
		t.Errorf("got %v", err)
	}
}

func burst() error { panic("too much") }

// TestAnEndOfItsGoroutineIsNoPanic: a test that fails in a hook ends as it does elsewhere.
func TestAnEndOfItsGoroutineIsNoPanic(t *testing.T) {
	t.Parallel()
	ended := make(chan bool)
	go func() {
		returned := false
		defer func() { ended <- !returned }()
		_ = callback.Try(func() error {
			runtime.Goexit()
			return nil
		})
		returned = true
	}()
	if !<-ended {
		t.Error("the goroutine went on")
	}
}

func TestAPanicIsLoggedOnceForEachFunction(t *testing.T) {
	t.Parallel()
	var said bytes.Buffer
	guard := callback.NewGuard(zerolog.New(&said))
	for range 3 {
		for _, name := range []string{"Backoff", "Observer.Taken"} {
			if guard.Do(name, func() { _ = burst() }) {
				t.Errorf("%s returned", name)
			}
		}
	}
	calls := 0
	if !guard.Do("Observer.Finished", func() { calls++ }) || calls != 1 {
		t.Errorf("called %d times", calls)
	}
	text := said.String()
	for _, name := range []string{"Backoff", "Observer.Taken"} {
		if strings.Count(text, `"function":"`+name+`"`) != 1 {
			t.Errorf("the log says\n%s", text)
		}
	}
	if strings.Count(text, "\n") != 2 || strings.Count(text, "callback_test.burst") != 2 {
		t.Errorf("the log says\n%s", text)
	}
}
