package figures

import (
	"fmt"
	"time"

	"github.com/headgate/headgate/loadtest/internal/load"
)

// What may go wrong without breaking a promise: grace is how much later than its time-out an answer may come, and of 20 jobs one may
// have no answer, of 100 one a late one. A handful of either is a hiccup of the machine.
const (
	grace          = 50 * time.Millisecond
	unansweredIn   = 20
	lateIn         = 100
	hiccup         = 10
	overloadAdvice = "this rate is more than one producer and its Redis can do here"
)

// broken returns the promises that did not hold. Of other systems only lost jobs are one.
func (f *Figures) broken(r *Run) []string {
	bad := []string{}
	note := func(broken bool, format string, args ...any) {
		if broken {
			bad = append(bad, fmt.Sprintf(format, args...))
		}
	}
	note(f.Lost > 0, "%d admitted jobs are lost", f.Lost)
	c := r.Account.Census
	if c == nil {
		return bad
	}
	note(!c.Conserved(), "what Redis accepted is not what it holds and has let go: %+v", *c)
	note(c.Accepted < int64(f.Admitted) || c.Accepted > int64(f.Admitted+f.Unknown),
		"Redis accepted %d jobs, producers were told of %d and do not know of %d", c.Accepted, f.Admitted, f.Unknown)
	for _, b := range f.Bounds {
		note(b.Exceeded, "scope %s admitted more than burst + rate x time: it used %.4f of its burst of %d", b.Scope, b.Used, b.Burst)
	}
	for _, c := range f.Caps {
		note(c.Most > c.Cap, "%d jobs of queue %s ran at a time, its cap is %d", c.Most, c.Queue, c.Cap)
	}
	note(f.Held > 0 && !r.Account.Gated && !r.Interrupted, "%d jobs wait and nothing holds them back", f.Held)
	held := len(bad)
	unanswered := f.Unavailable + f.Unknown
	note(unanswered > max(hiccup, f.Sent/unansweredIn),
		"%d of %d jobs had no answer (%d were not sent, of %d it is not known), %d were let in: %s",
		unanswered, f.Sent, f.Unavailable, f.Unknown, f.Admitted, overloadAdvice)
	note(f.Late > max(hiccup, f.Sent/lateIn), "%d of %d answers came later than the time-out of %s: %s", f.Late, f.Sent, load.Timeout, overloadAdvice)
	f.Overload = len(bad) - held
	return bad
}
