package producer

import (
	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/tally"
)

// note counts the jobs of a flight. Duplicates, and jobs that were refused for another reason, are none of the limits'.
func note(t *tally.Tally, entries []*entry) {
	t.Note(func(add func(tally.Path, tally.Sum)) {
		for _, e := range entries {
			one := tally.Sum{Tokens: e.job.Cost}
			switch {
			case e.verdict.Decision == headgate.Admitted:
				one.Allowed = 1
			case e.verdict.Reason == headgate.ReasonLimited || e.verdict.Reason == headgate.ReasonTooCostly:
				one.Refused = 1
			default:
				continue
			}
			add(tally.Path{Tenant: e.job.Tenant, Queue: e.job.Queue, Class: e.job.Priority}, one)
		}
	})
}
