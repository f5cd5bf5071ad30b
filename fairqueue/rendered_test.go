package fairqueue

import (
	"fmt"
	"slices"
	"strconv"
	"testing"

	"pgregory.net/rapid"

	"github.com/headgate/headgate/admission"
)

// rendering is a room in which each tenant always has jobs waiting, and what each has had.
type rendering struct {
	room    *Room
	jobs    int
	weights map[string]float64
	// actual is what each job will have cost, ready those in workers' hands.
	actual map[*Job]admission.Tokens
	ready  []*Entry
	// served is what each tenant has had over its weight: what its jobs have cost that have ended, what others have reserved.
	served map[string]float64
	// largest is the largest reservation of a tenant's job over its weight, beyond how much those in hand will have cost more than they reserved, at the
	// most, and cut what its refunds were cut by.
	largest, beyond, cut map[string]float64
	draw                 func(tenant string) (reserved, actual admission.Tokens)
}

func newRendering(weights map[string]float64, slots int, draw func(string) (reserved, actual admission.Tokens)) *rendering {
	r := &rendering{
		room: NewRoom(), weights: weights, draw: draw, actual: map[*Job]admission.Tokens{}, served: map[string]float64{},
		largest: map[string]float64{}, beyond: map[string]float64{}, cut: map[string]float64{},
	}
	r.room.AddPool("main", false, []string{"mail"}, []int{1})
	r.room.Weight = func(_ admission.Priority, tenant string) admission.Weight { return admission.Weight(weights[tenant]) }
	c := r.room.Begin(0)
	for tenant := range weights {
		for range slots + 1 { // nobody runs out of jobs within a call
			r.place(c, tenant)
		}
	}
	r.room.Pools["main"].Slots = slots
	c.Refill("main")
	r.fill(c)
	return r
}

func (r *rendering) place(c *Pass, tenant string) {
	r.jobs++
	reserved, actual := r.draw(tenant)
	j := &Job{Tenant: tenant, ID: strconv.Itoa(r.jobs), Queue: "mail", Score: int64(r.jobs), Cost: reserved, Seq: r.room.NextSeq()}
	r.actual[j] = actual
	r.largest[tenant] = max(r.largest[tenant], float64(reserved)/r.weights[tenant])
	c.Place(j)
}

func (r *rendering) fill(c *Pass) {
	for _, d := range c.Fill() {
		r.ready = append(r.ready, d.Entry)
		r.served[d.Job.Tenant] += float64(d.Job.Cost) / r.weights[d.Job.Tenant]
		r.place(c, d.Job.Tenant)
	}
	beyond := map[string]float64{}
	for _, e := range r.ready {
		beyond[e.Job.Tenant] += max(0, float64(r.actual[e.Job]-e.Job.Cost)/r.weights[e.Job.Tenant])
	}
	for tenant, sum := range beyond {
		r.beyond[tenant] = max(r.beyond[tenant], sum)
	}
}

// finish ends the i-th of the jobs in hand.
func (r *rendering) finish(i int) {
	e := r.ready[i]
	r.ready = slices.Delete(r.ready, i, i+1)
	tenant, p := e.Job.Tenant, r.room.Pools["main"]
	p.Ready = slices.DeleteFunc(p.Ready, func(other *Entry) bool { return other == e })
	c := r.room.Begin(0)
	c.Release(p, e)
	t := r.room.queue("mail").classes[0].tenants[tenant]
	before, more := float64(t.tag), float64(r.actual[e.Job]-e.Job.Cost)/r.weights[tenant]
	c.Rendered(e.Job, r.actual[e.Job])
	r.cut[tenant] += max(0, float64(t.tag)-before-more)
	r.served[tenant] += more
	c.Refill("main")
	r.fill(c)
}

// TestServiceIsSharedByWhatItHasCost holds what the package comment says of tenants that are runnable throughout: whatever jobs reserve and cost, in
// whatever order they end, over no stretch of time does one get more than the bound beyond another.
func TestServiceIsSharedByWhatItHasCost(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		weights := map[string]float64{}
		for i := range rapid.IntRange(2, 4).Draw(rt, "tenants") {
			weights[fmt.Sprint("t", i)] = float64(rapid.IntRange(1, 4).Draw(rt, "weight"))
		}
		r := newRendering(weights, rapid.IntRange(1, 6).Draw(rt, "slots"), func(string) (reserved, actual admission.Tokens) {
			return admission.Tokens(rapid.IntRange(1, 20).Draw(rt, "reserved")), admission.Tokens(rapid.IntRange(0, 60).Draw(rt, "actual"))
		})
		ahead := map[[2]string]float64{} // by how much one was behind another at the most
		for range rapid.IntRange(10, 80).Draw(rt, "ends") {
			r.finish(rapid.IntRange(0, len(r.ready)-1).Draw(rt, "which"))
			for i := range weights {
				for j := range weights {
					if i == j {
						continue
					}
					pair, lead := [2]string{i, j}, r.served[i]-r.served[j]
					ahead[pair] = min(ahead[pair], lead)
					bound := 2*(r.largest[i]+r.largest[j]) + r.beyond[i] + r.beyond[j] + r.cut[j]
					if lead-ahead[pair] > bound+1e-6 {
						rt.Fatalf("%s has had %g more than %s over their weights, and may have %g", i, lead-ahead[pair], j, bound)
					}
				}
			}
		}
	})
}

// TestNoRefundIsCutOfOneJobAtATime: with one slot, and the same reservation each time, all that a job has not needed counts.
func TestNoRefundIsCutOfOneJobAtATime(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		reserved := map[string]admission.Tokens{}
		for _, tenant := range []string{"a", "b", "c"} {
			reserved[tenant] = admission.Tokens(rapid.IntRange(1, 20).Draw(rt, "reserved"))
		}
		r := newRendering(map[string]float64{"a": 1, "b": 2, "c": 3}, 1, func(tenant string) (admission.Tokens, admission.Tokens) {
			return reserved[tenant], admission.Tokens(rapid.IntRange(0, int(reserved[tenant])).Draw(rt, "actual"))
		})
		for range 60 {
			r.finish(0)
		}
		for tenant, cut := range r.cut {
			if cut > 1e-9 {
				rt.Fatalf("%s lost %g of its refunds", tenant, cut)
			}
		}
	})
}
