package trueup

import (
	"cmp"
	"container/heap"
	"time"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/buckets"
	"github.com/headgate/headgate/internal/estimate"
	"github.com/headgate/headgate/internal/trace"
	"github.com/headgate/headgate/store"
)

// Arm is what one way to estimate came to. It is a plain value.
type Arm struct {
	// Estimate names it, and TrueUp says that each call that was admitted told its cost as it ended.
	Estimate string `json:"estimate"`
	TrueUp   bool   `json:"true_up"`
	// Admitted, Refused and TooCostly are calls; of TooCostly, which are among the refused, the estimate was above the burst. Short are those
	// admitted that cost more than was reserved, Late those whose cost came after store.RefundWindow.
	Admitted  int `json:"admitted"`
	Refused   int `json:"refused"`
	TooCostly int `json:"too_costly"`
	Short     int `json:"short"`
	Late      int `json:"late"`
	// Reserved and Used are tokens of the calls admitted: what was estimated, and what they have cost.
	Reserved admission.Tokens `json:"reserved"`
	Used     admission.Tokens `json:"used"`
	// OfLimit is Used by what the limit lets through from the first call to the last, burst + rate x time.
	OfLimit float64 `json:"of_limit"`
	// Excess is how many tokens more than burst + rate x time were used in the worst stretch of time, and Debts the same in bursts: trued up they are
	// bounded by one debt of a burst, and what was under way.
	Excess float64 `json:"excess"`
	Debts  float64 `json:"excess_bursts"`
}

// Settings are what all arms have in common: the limit, of all calls together, what a call is thought to generate at most, and how long it takes for
// each token. They are a plain value.
type Settings struct {
	Limit     admission.Limit
	MaxOutput admission.Tokens
	TokenTime time.Duration
}

// Ways returns the ways to estimate.
func Ways() []string { return []string{ByContext, ByMost, ByLearned} }

// Run replays calls, of which there must be one, in the order of their arrivals, by one of the Ways.
func (s *Settings) Run(calls []trace.Call, by string, trueUp bool) Arm {
	r := run{
		Settings: s, arm: Arm{Estimate: by, TrueUp: trueUp}, path: buckets.AppendPath(nil, [admission.Levels]admission.Limit{s.Limit, none, none, none}, "", "", ""),
		meter: meter{rate: float64(s.Limit.Rate()), burst: float64(s.Limit.Burst), level: float64(s.Limit.Burst), at: calls[0].Arrival},
	}
	for i := range calls {
		for len(r.ends) > 0 && !r.ends[0].at.After(calls[i].Arrival) {
			r.end()
		}
		r.begin(i, &calls[i])
	}
	for len(r.ends) > 0 {
		r.end()
	}
	span := calls[len(calls)-1].Arrival.Sub(calls[0].Arrival).Seconds()
	r.arm.OfLimit = float64(r.arm.Used) / (r.meter.burst + r.meter.rate*span)
	r.arm.Excess, r.arm.Debts = r.meter.excess, r.meter.excess/r.meter.burst
	return r.arm
}

var none = admission.Limit{Disabled: true}

// run is one arm under way. It is for one goroutine.
type run struct {
	*Settings

	arm   Arm
	path  []buckets.LevelLimit
	set   buckets.Set
	costs estimate.Book
	ends  ends
	meter meter
	// back is what came back so far.
	back admission.Tokens
}

// The ways to estimate.
const (
	ByContext = "context"
	ByMost    = "context + most"
	ByLearned = "learned"
)

// guess returns what a call is estimated to cost.
func (r *run) guess(call *trace.Call) admission.Tokens {
	switch r.arm.Estimate {
	case ByContext:
		return max(1, call.Context)
	case ByMost:
		return min(call.Context+r.MaxOutput, admission.MaxCost)
	}
	return r.costs.Guess(call.Tenant, "", call.Type, r.Limit.Burst)
}

func (r *run) begin(number int, call *trace.Call) {
	cost, now := r.guess(call), buckets.InstantOf(call.Arrival)
	verdict := r.set.Take(now, 0, r.path, cost)
	if verdict.Decision != admission.Admitted {
		r.arm.Refused++
		if verdict.Reason == admission.ReasonTooCostly {
			r.arm.TooCostly++
		}
		return
	}
	r.arm.Admitted++
	r.arm.Reserved += cost
	r.arm.Used += call.Cost()
	if call.Cost() > cost {
		r.arm.Short++
	}
	r.meter.use(call.Arrival, float64(call.Cost()))
	heap.Push(&r.ends, ending{call.Arrival.Add(time.Duration(call.Generated) * r.TokenTime), number, call, cost, r.set.LevelAt(now, 0, r.path[0]), r.back})
}

// end tells what the call has cost that ends next, as a commit does.
func (r *run) end() {
	e, _ := heap.Pop(&r.ends).(ending) // It holds nothing else.
	r.costs.Learn(e.call.Tenant, "", e.call.Type, e.call.Cost())
	took := e.at.Sub(e.call.Arrival)
	switch {
	case !r.arm.TrueUp:
		return
	case took > store.RefundWindow:
		r.arm.Late++
		return
	}
	step, now, elapsed := r.path[0], buckets.InstantOf(e.at), buckets.Span(took.Microseconds())
	room := step.Limit.Burst - e.left - step.Limit.Came(elapsed) - buckets.MicroOf(r.back-e.back)
	before := r.set.Bucket(step.Scope)
	level, stamp := buckets.Settle(now, 0, before, step.Limit)
	level = buckets.TrueUp(level, step.Limit, e.cost, e.call.Cost(), elapsed, room)
	r.set.Put(step.Scope, step.Limit.Store(now, 0, before, level, stamp))
	r.back += max(0, e.cost-e.call.Cost())
}

// ending is a call that was admitted.
type ending struct {
	at     time.Time
	number int
	call   *trace.Call
	// cost is what was reserved, left what the bucket held then, and back what had come back until then.
	cost admission.Tokens
	left buckets.Micro
	back admission.Tokens
}

// ends is a heap of those under way, the next to end first.
//
//nolint:recvcheck // A heap grows by pointer and is looked at by value.
type ends []ending

// Len, Less, Swap, Push and Pop are those of a heap.Interface.
func (e ends) Len() int { return len(e) }

// Less is in the order of their ends.
func (e ends) Less(i, j int) bool {
	return cmp.Or(e[i].at.Compare(e[j].at), cmp.Compare(e[i].number, e[j].number)) < 0
}

// Swap swaps two.
func (e ends) Swap(i, j int) { e[i], e[j] = e[j], e[i] }

// Push adds one behind the last.
func (e *ends) Push(one any) { *e = append(*e, one.(ending)) } //nolint:forcetypeassert // It is given nothing else.

// Pop takes the last one off.
func (e *ends) Pop() any {
	last := len(*e) - 1
	one := (*e)[last]
	*e = (*e)[:last]
	return one
}

// meter is a bucket without a floor, charged with what calls cost in truth as they begin: how far it is below zero is how much more was used than
// burst + rate x time in the worst stretch that ends now.
type meter struct {
	rate, burst, level, excess float64
	at                         time.Time
}

func (m *meter) use(at time.Time, tokens float64) {
	m.level = min(m.burst, m.level+m.rate*at.Sub(m.at).Seconds()) - tokens
	m.at, m.excess = at, max(m.excess, -m.level)
}
