package redisstore_test

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/fairqueue"
)

// serviceLog is the oracle of law L7: it watches, between any two steps, the service of every tenant that was runnable throughout, what its jobs have
// cost that have told, and what others were dispatched for, and compares pairs.
type serviceLog struct {
	room *fairqueue.Room
	// since holds, for each pair of tenants runnable in a class without a break, the service that each had when the
	// pair began.
	since map[pair][4]float64
	// served is W/w of a tenant in a class, added up at each dispatch and corrected by what jobs tell; largest is the largest c/w of it.
	served  map[string]float64
	largest map[string]float64
	// beyond is by how much jobs of a tenant have cost more, over its weight, since it was last dispatched, and most the most of that; less is by how
	// much they have cost less in all.
	beyond, most, less map[string]float64
}

type pair struct{ class, a, b string }

func newServiceLog(room *fairqueue.Room) *serviceLog {
	return &serviceLog{
		room: room, since: map[pair][4]float64{}, served: map[string]float64{}, largest: map[string]float64{},
		beyond: map[string]float64{}, most: map[string]float64{}, less: map[string]float64{},
	}
}

func (s *serviceLog) begin() map[string][]string { return s.room.Runnable() }

func (s *serviceLog) dispatched(d fairqueue.Dispatch) {
	class := fmt.Sprintf("%d:%s", d.Job.Class, d.Job.Queue)
	share := s.room.Share(d.Job)
	s.served[class+"/"+d.Job.Tenant] += share
	s.largest[class+"/"+d.Job.Tenant] = math.Max(s.largest[class+"/"+d.Job.Tenant], share)
	s.beyond[class+"/"+d.Job.Tenant] = 0
}

func (s *serviceLog) rendered(j *fairqueue.Job, actual admission.Tokens) {
	name := fmt.Sprintf("%d:%s/%s", j.Class, j.Queue, j.Tenant)
	share := s.room.Share(j) // By the weight that is in force, which may be less than that of its dispatch.
	more := share * (float64(actual)/float64(j.Cost) - 1)
	if more < 0 {
		s.largest[name] = max(s.largest[name], share) // So far below virtual time its tag may come.
	}
	s.served[name] += more
	s.less[name] += max(0, -more)
	s.beyond[name] += max(0, more)
	s.most[name] = max(s.most[name], s.beyond[name])
}

// weightsChanged starts every pair anew: the bound is stated for one set of weights. The largest shares stay, because
// a tag may still hold one from before.
func (s *serviceLog) weightsChanged() { clear(s.since) }

// end compares every pair that was runnable before the step and is still. Within a step a tenant may leave and come
// back only by being served, so being there at both ends is being there throughout or starting anew at V.
func (s *serviceLog) end(before map[string][]string) error {
	after := s.room.Runnable()
	alive := map[pair]bool{}
	for class, tenants := range after {
		for i, a := range tenants {
			for _, b := range tenants[i+1:] {
				p := pair{class, a, b} // names with the order of entering
				if slices.Contains(before[class], a) && slices.Contains(before[class], b) {
					alive[p] = true
				}
			}
		}
	}
	for p := range s.since {
		if !alive[p] {
			delete(s.since, p)
		}
	}
	for p := range alive {
		a, b := p.class+"/"+plain(p.a), p.class+"/"+plain(p.b)
		now := [4]float64{s.served[a], s.served[b], s.less[a], s.less[b]}
		if _, ok := s.since[p]; !ok {
			s.since[p] = now
			continue
		}
		lead := (now[0] - s.since[p][0]) - (now[1] - s.since[p][1])
		bound := s.largest[a] + s.largest[b] + s.most[a] + s.most[b]
		if s.less[a]+s.less[b] > 0 {
			bound += s.largest[a] + s.largest[b]
		}
		back := now[3] - s.since[p][3] // Of what the one behind has not needed some may have been cut.
		if lead < 0 {
			back = now[2] - s.since[p][2]
		}
		if math.Abs(lead) > (bound+back)*(1+1e-9) {
			return fmt.Errorf("law L7: class %s, tenants %s and %s are %g apart, bound %g", p.class, p.a, p.b, lead, bound+back)
		}
	}
	return nil
}

// plain cuts the order of entering off a tenant's name.
func plain(name string) string {
	tenant, _, _ := strings.Cut(name, "#")
	return tenant
}
