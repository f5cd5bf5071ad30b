package scheduler

import (
	"context"
	"errors"
	"time"

	"github.com/headgate/headgate/store"
)

const (
	// rateMinutes is how many minutes a point of rates has.
	rateMinutes = int64(store.RateStep / time.Minute)
	// maxUnkept is how many points wait for a store that is away, as many as the minutes that are kept make. The oldest give way.
	maxUnkept = int(store.CountedFor / store.RateStep)
)

// chart adds up what was decided of queues in minutes, to points. Who begins makes those of the hour before anew: they come out the same, so that
// none is missing where another died before it had kept one. The zero chart begins with the next minute.
type chart struct {
	// at is the first minute of the point under way, known how many of its minutes are.
	at     int64
	known  int64
	queues map[string]store.Decided
	// unkept are points that are over.
	unkept []store.RateNote
}

// observe adds a minute; minutes come in order. One in which queues were not counted but something was is not known, and one in which nothing was
// only if it was just over: else Redis may have been away in it, or its clock have left it out. A point of which a minute is not known is none.
func (c *chart) observe(minute int64, r *store.Rates, justOver bool) {
	if at := minute - minute%rateMinutes; at != c.at || c.queues == nil {
		c.at, c.known, c.queues = at, 0, map[string]store.Decided{}
	}
	if !r.Watched && (r.All != (store.Decided{}) || !justOver) {
		return
	}
	c.known++
	for name, one := range r.Queues {
		sum := c.queues[name]
		c.queues[name] = store.Decided{Allowed: sum.Allowed + one.Allowed, Refused: sum.Refused + one.Refused}
	}
	if c.known == rateMinutes {
		c.unkept = append(c.unkept, store.RateNote{At: time.Unix(c.at*60, 0), Queues: c.queues})
		c.unkept = c.unkept[max(0, len(c.unkept)-maxUnkept):]
		c.queues = nil
	}
}

// keepRates has the store keep the points that are over. Sent again they are the same.
func (s *Scheduler) keepRates(ctx context.Context, d *sentry) error {
	for len(d.chart.unkept) > 0 {
		note := d.chart.unkept[0]
		note.Owner = s.owner
		err := s.store.NoteRates(ctx, note)
		switch {
		case errors.Is(err, store.ErrNotHolder) || errors.Is(err, store.ErrNotMeasured):
			d.chart.unkept = nil // Who has the lease makes them anew, or nobody has to.
			return nil
		case err != nil:
			d.next = time.Time{}
			return err
		}
		d.chart.unkept = d.chart.unkept[1:]
	}
	return nil
}
