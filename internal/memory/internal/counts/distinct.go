package counts

import (
	"math"
	"time"

	"github.com/headgate/headgate/internal/hyperloglog"
	"github.com/headgate/headgate/store"
)

// names are those of a queue in an hour.
type names struct{ tenants, jobs hyperloglog.Sketch }

func hourAt(now int64) int64 {
	return int64(math.Floor(float64(now) / float64(time.Hour.Microseconds())))
}

// addNames adds the names of counts to those of the hour under way, as script distinct does.
func (c *Counts) addNames(counted []store.ScopeCount, now, over int64) {
	hour := hourAt(now)
	for at := range c.hours {
		if at < hourAt(over)-1 {
			delete(c.hours, at)
		}
	}
	for i := range counted {
		s := &counted[i]
		if len(s.Tenants)+len(s.Jobs) == 0 {
			continue
		}
		if c.hours[hour] == nil {
			c.hours[hour] = map[string]*names{}
		}
		of := c.hours[hour][s.Queue]
		if of == nil {
			if len(c.hours[hour]) >= store.MaxDistinctQueues {
				continue
			}
			of = &names{}
			c.hours[hour][s.Queue] = of
		}
		for _, name := range s.Tenants {
			of.tenants.Add(name)
		}
		for _, name := range s.Jobs {
			of.jobs.Add(name)
		}
	}
}

// Distincts returns how many different names queues had, all for "".
func (c *Counts) Distincts(now int64, queue string) map[string]store.Distinct {
	all, hour := map[string]store.Distinct{}, hourAt(now)
	for at, queues := range c.hours {
		for name, of := range queues {
			if queue != "" && queue != name {
				continue
			}
			d, one := all[name], store.DistinctNames{Tenants: of.tenants.Count(), Jobs: of.jobs.Count()}
			switch at {
			case hour:
				d.ThisHour = one
			case hour - 1:
				d.LastHour = one
			default:
				continue
			}
			all[name] = d
		}
	}
	return all
}
