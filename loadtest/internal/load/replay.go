package load

import (
	"cmp"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/internal/trace"
)

const scenarioTrace = "trace"

// replay makes the plan of a trace: its rows in rows ÷ rate seconds, their run times scaled alike. A row's type is its
// queue, a stable hash of its tenant its class. Its downstream fails if it did then.
func (b *builder) replay() (*Plan, error) {
	t := b.spec.Trace
	if t == nil || len(t.Rows) == 0 {
		return nil, ErrNoTrace
	}
	b.plan.Duration = time.Duration(float64(len(t.Rows)) / b.spec.Rate * float64(time.Second))
	factor := 0.0
	if span := t.Span(); span > 0 {
		factor = float64(b.plan.Duration) / float64(span)
	}
	b.plan.MaxAttempts = 1
	b.breakers(b.part(0.02))
	names := newNames(&b.plan)
	b.plan.Arrivals = make([]Arrival, len(t.Rows))
	for i := range t.Rows {
		row := &t.Rows[i]
		class := trace.ClassOf(row.Tenant, b.spec.Seed, b.plan.Classes)
		b.plan.Arrivals[i] = Arrival{
			At:     time.Duration(factor * float64(row.Arrival.Sub(t.Rows[0].Arrival))),
			Tenant: names.tenants.of(row.Tenant), Queue: names.queues.of(queueName(row.Type)), Downstream: names.downstreams.of(row.Downstream),
			Class: slices.IndexFunc(b.plan.Classes, func(c admission.Class) bool { return c.Name == class }),
			Work:  time.Duration(factor * float64(row.RunTime)), Bytes: row.Bytes, Cost: row.Cost, Fails: row.Fails,
		}
		if b.spec.Work >= 0 {
			b.plan.Arrivals[i].Work = b.spec.Work
		}
	}
	b.open()
	return &b.plan, nil
}

// wide is a limit that a trace, whose peaks nobody planned, passes: it is checked all the same.
const wide = 100_000_000

func (b *builder) open() {
	b.spec.TenantLimit, b.spec.GlobalLimit = cmp.Or(b.spec.TenantLimit, wide), cmp.Or(b.spec.GlobalLimit, wide)
	b.limits(1, len(b.plan.Tenants))
}

// queueName makes a name for a queue of a type: it may hold no ':'.
func queueName(jobType string) string { return strings.ReplaceAll(jobType, ":", "-") }

// maxTraceQueues is how many types of a trace have a queue of their own; the rest share the last.
const maxTraceQueues = 63

// nameList gives names their places.
type nameList struct {
	list  *[]string
	place map[string]int
	most  int
}

func (l *nameList) of(name string) int {
	place, ok := l.place[name]
	if !ok {
		if place = len(*l.list); place == l.most {
			return place - 1
		}
		l.place[name] = place
		*l.list = append(*l.list, name)
	}
	return place
}

type nameLists struct{ tenants, queues, downstreams nameList }

func newNames(p *Plan) *nameLists {
	return &nameLists{
		tenants:     nameList{&p.Tenants, map[string]int{}, math.MaxInt},
		queues:      nameList{&p.Queues, map[string]int{}, maxTraceQueues},
		downstreams: nameList{&p.Downstreams, map[string]int{}, math.MaxInt},
	}
}
