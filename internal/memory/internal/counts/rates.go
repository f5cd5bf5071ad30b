package counts

import (
	"time"

	"github.com/headgate/headgate/store"
)

// pointsOfDay is how many points of rates a day has.
const pointsOfDay = int(24 * time.Hour / store.RateStep)

// Rates is what was decided of queues, by days of points. Script rates keeps the same. The zero Rates is ready.
type Rates struct{ days map[int64]*rateDay }

// rateDay are the points of a day: which are known, those of each queue, and whether one was left out.
type rateDay struct {
	known   [pointsOfDay]bool
	queues  map[string]*[pointsOfDay]store.Rate
	crowded bool
}

// Note keeps a point. What is of more than RateHistoryLife and a day before it goes.
func (r *Rates) Note(to *store.RateNote) {
	day, point := store.RateSlot(to.At)
	for other := range r.days {
		if day-other > int64(store.RateHistoryLife/(24*time.Hour))+1 {
			delete(r.days, other)
		}
	}
	if r.days == nil {
		r.days = map[int64]*rateDay{}
	}
	of := r.days[day]
	if of == nil {
		of = &rateDay{queues: map[string]*[pointsOfDay]store.Rate{}}
		r.days[day] = of
	}
	of.known[point] = true
	for _, name := range to.Names() {
		points := of.queues[name]
		switch {
		case points == nil && len(of.queues) >= store.MaxRateQueues:
			of.crowded = true
			continue
		case points == nil:
			points = &[pointsOfDay]store.Rate{}
			of.queues[name] = points
		}
		one := to.Queues[name]
		points[point] = store.Rate{Allowed: uint32(min(one.Allowed, store.MaxRate)), Refused: uint32(min(one.Refused, store.MaxRate))} //nolint:gosec // Counts are not below 0.
	}
}

// History returns what store.Buckets.RateHistory does.
func (r *Rates) History(now time.Time, queues []string) store.RateHistory {
	h := store.RateHistory{First: now.Truncate(store.RateStep).Add(-store.RateHistoryLife), Queues: make(map[string][]store.Rate, len(queues))}
	for _, queue := range queues {
		all := make([]store.Rate, store.RatePoints)
		for at := range all {
			day, point := store.RateSlot(h.First.Add(time.Duration(at) * store.RateStep))
			of := r.days[day]
			if of == nil || !of.known[point] {
				continue
			}
			points := of.queues[queue]
			if points != nil {
				all[at] = points[point]
			}
			all[at].Known = points != nil || !of.crowded
		}
		h.Queues[queue] = all
	}
	return h
}
