package figures

import (
	"fmt"

	"github.com/headgate/headgate/loadtest/internal/drive"
)

// broken returns the promises that did not hold. Of other systems only lost jobs are one.
func (f *Figures) broken(r *drive.Result) []string {
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
	return bad
}
