package worker

import (
	"cmp"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/rs/zerolog"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/internal/callback"
)

const (
	// failureEvery is how often failures of one cause are logged; those between are counted.
	failureEvery = 10 * time.Second
	// maxCauses is how many causes are told apart; further ones count as one.
	maxCauses = 256
	// maxCauseText and maxFailureText bound what of an error tells causes apart, and what of it is logged.
	maxCauseText, maxFailureText = 80, 1 << 10
)

// failures tells the log how handlers fail: the first failure of a cause at once, then one of it every failureEvery, with the
// number of those between. A cause is an error of a type of jobs with a downstream, whatever numbers are in its text. So a
// downstream that is dead, or an error that names each job, does not flood the log. Several goroutines may use it.
type failures struct {
	mu struct {
		sync.Mutex
		causes map[string]*cause
	}
}

// brief is an error whose text quotes what may be a part of a payload, and that says of itself what may be logged.
type brief interface {
	error
	Brief() string
}

// cause is when a cause is logged again, and how many failures of it were not since it last was.
type cause struct {
	next     time.Time
	unlogged int
}

func newFailures() *failures {
	f := &failures{}
	f.mu.causes = make(map[string]*cause)
	return f
}

// tell logs an event whose handler failed: a warning while the job comes back, an error where it is a dead letter. What a payload
// holds is never logged, so nothing of the text either that says why one was not taken.
func (f *failures) tell(logger *zerolog.Logger, event Event, a answer) {
	level := zerolog.WarnLevel
	what := "job failed: it is retried"
	switch {
	case a.err == nil || !failed(event):
		return
	case event.Outcome == Dead:
		level, what = zerolog.ErrorLevel, "job failed: it is a dead letter"
	case event.Outcome == Released:
		what = "probe of a downstream failed: its job comes back, no attempt burnt"
	}
	if logger.GetLevel() > level {
		return
	}
	text, stack := a.err.Error(), ""
	if panicked, ok := errors.AsType[*callback.PanicError](a.err); ok {
		text, stack = fmt.Sprintf("panic: %v", panicked.Value), panicked.Stack
	}
	if brief, ok := errors.AsType[brief](a.err); ok {
		text = "an error whose Brief panicked"
		_ = callback.Try(func() error {
			text = brief.Brief()
			return nil
		})
	}
	if event.Reason == ReasonBadPayload {
		text = "the handler's type does not take the payload: headgate job show tells why"
	}
	service, _ := admission.ServiceOf(event.Downstream) // All accounts of a dead one fail alike.
	due, unlogged := f.due(strings.Join([]string{event.Type, service, string(event.Outcome), causeText(text)}, "\x00"), time.Now())
	if !due {
		return
	}
	line := logger.WithLevel(level).Str("tenant", event.Key.Tenant).Str("job", event.Key.ID).Str("queue", event.Queue).Str("type", event.Type).
		Int("attempt", event.Attempt).Str("outcome", string(event.Outcome)).Str("error", text[:min(len(text), maxFailureText)])
	if event.Downstream != "" {
		line = line.Str("downstream", event.Downstream)
	}
	if stack != "" {
		line = line.Str("stack", stack)
	}
	if event.Outcome == Dead {
		line = line.Str("reason", cmp.Or(event.Reason, "max_attempts"))
	} else {
		line = line.Stringer("comes_back_in", a.delay)
	}
	if unlogged > 0 {
		line = line.Int("unlogged", unlogged)
	}
	line.Msg(what)
}

// failed reports whether an event says that a handler failed, or could not be called.
func failed(event Event) bool {
	switch event.Outcome {
	case Retried, Dead:
		return true
	case Released:
		return event.Reason == ReasonProbe
	case Completed, Expired, Cancelled, Lost:
	}
	return false
}

// due reports whether a failure of a cause is to be logged, and how many were not since the last one was.
func (f *failures) due(name string, now time.Time) (due bool, unlogged int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	c := f.mu.causes[name]
	if c == nil && len(f.mu.causes) >= maxCauses {
		f.forgetLocked(now)
		if len(f.mu.causes) >= maxCauses {
			name = "" // of all that are too many
			c = f.mu.causes[name]
		}
	}
	if c == nil {
		c = &cause{}
		f.mu.causes[name] = c
	}
	if now.Before(c.next) {
		c.unlogged++
		return false, 0
	}
	unlogged, c.unlogged = c.unlogged, 0
	c.next = now.Add(failureEvery)
	return true, unlogged
}

// forgetLocked forgets causes that were not seen for long.
func (f *failures) forgetLocked(now time.Time) {
	for name, c := range f.mu.causes {
		if now.Sub(c.next) > failureEvery {
			delete(f.mu.causes, name)
		}
	}
}

// causeText is the beginning of an error's text with # for each number in it.
func causeText(text string) string {
	var b strings.Builder
	number := false
	for _, c := range []byte(text[:min(len(text), maxCauseText)]) {
		digit := c >= '0' && c <= '9'
		switch {
		case !digit:
			b.WriteByte(c)
		case !number:
			b.WriteByte('#')
		}
		number = digit
	}
	return b.String()
}
