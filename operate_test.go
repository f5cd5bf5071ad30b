package headgate_test

import (
	"errors"
	"testing"
	"time"

	"github.com/headgate/headgate"
)

// TestNothingIsPausedThatNoJobCanName: in Redis and in memory, since nobody could end it by its name.
func TestNothingIsPausedThatNoJobCanName(t *testing.T) {
	t.Parallel()
	inMemory, err := headgate.Open(t.Context(), "memory:", headgate.Config{})
	check(t, err)
	t.Cleanup(func() { check(t, inMemory.Close()) })
	for place, hg := range map[string]*headgate.Client{"redis": open(t, headgate.Config{}), "memory": inMemory} {
		for _, target := range []headgate.Target{headgate.Queue("ma il"), headgate.Queue(""), headgate.Tenant("global"), headgate.Tenant("a:b"), headgate.Downstream("a b")} {
			if _, err := hg.Operate("ada").Pause(t.Context(), target, headgate.Hold{}); !errors.Is(err, headgate.ErrInvalid) {
				t.Errorf("%s: pause of %+v: %v", place, target, err)
			}
			if was, err := hg.Operate("ada").Resume(t.Context(), target, ""); was || !errors.Is(err, headgate.ErrInvalid) {
				t.Errorf("%s: resume of %+v: %t, %v", place, target, was, err)
			}
		}
		if _, err := hg.Operate("ada").Pause(t.Context(), headgate.Downstream("smtp:eu"), headgate.For(time.Minute, "")); err != nil {
			t.Errorf("%s: %v", place, err)
		}
	}
}

// TestTheFirstWordOnABreakerIsTheFleets: not that of a process that has not heard yet.
func TestTheFirstWordOnABreakerIsTheFleets(t *testing.T) {
	t.Parallel()
	hg := open(t, headgate.Config{})
	check(t, hg.Operate("ada").OpenBreaker(t.Context(), "smtp", headgate.For(time.Hour, "they move")))
	if state, rest := hg.Breaker("smtp").State(t.Context()); state != "open" || rest < 59*time.Minute || rest > time.Hour {
		t.Errorf("%s for %s", state, rest)
	}
	if state, rest := hg.Breaker("model").State(t.Context()); state != "closed" || rest != 0 {
		t.Errorf("%s for %s", state, rest)
	}
}
