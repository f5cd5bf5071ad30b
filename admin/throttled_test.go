package admin_test

import (
	"net/http"
	"testing"
	"time"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/breaker"
	"github.com/headgate/headgate/internal/rollout"
	"github.com/headgate/headgate/policy"
	"github.com/headgate/headgate/store"
)

// TestSessionsTellOfRefusedCalls: a job whose downstream answered 429 comes back when that said, with no attempt burnt, and without a word after a
// backoff; the breaker does not hear of it, the dispatch that moves does, in each partition, and everybody waits as long as the policy lets it.
func TestSessionsTellOfRefusedCalls(t *testing.T) {
	t.Parallel()
	everywhere(t, refusedCalls)
}

func refusedCalls(t *testing.T, p *plant) {
	t.Helper()
	rules := policy.Unlimited()
	rules.Downstreams = map[string]policy.Downstream{"smtp": {Dispatch: new(admission.PerSecond(1000)), MaxRetryAfter: time.Minute}}
	rules.Adaptive = map[string]policy.Adaptive{"out": {Of: "downstream smtp", Moves: policy.MovesDispatch, Min: 1}}
	_, err := rollout.Put(t.Context(), p.store, rules, rollout.Edit{Author: "ada", Reason: "test", Expected: rollout.AnyVersion})
	must(t, err)
	p.called("smtp", neverTrips())
	c := p.serving("mail", 8)
	p.enqueueTo("smtp", 4)
	p.want(http.StatusOK, "operator", ask{op: "GET /api/v1/queues/{queue}", path: map[string]string{"queue": "mail"}}) // By now the server has read the policy.
	jobs := c.lease(`{"max":4,"wait":"5s"}`)
	if len(jobs) != 4 {
		t.Fatalf("%d jobs", len(jobs))
	}
	c.end(http.StatusBadRequest, "fail", jobs[0], `,"retry_after":"30s"`)
	c.end(http.StatusBadRequest, "fail", jobs[0], `,"kind":"throttled","retry_after":"10ms"`)
	held := func() []store.Hold {
		all, err := p.store.Holds(t.Context())
		must(t, err)
		return all
	}
	c.end(http.StatusOK, "fail", jobs[0], `,"kind":"throttled"`)
	if all := held(); len(all) != 0 {
		t.Errorf("held without a word of when: %+v", all)
	}
	c.end(http.StatusOK, "fail", jobs[1], `,"kind":"throttled","retry_after":"30s"`)
	c.end(http.StatusOK, "fail", jobs[2], `,"kind":"throttled","retry_after":"2h"`)
	c.end(http.StatusOK, "fail", jobs[3], `,"kind":"throttled","retry_after":"5s"`)
	for i, part := range p.store.Partitions() {
		all, err := part.Holds(t.Context())
		must(t, err)
		if len(all) != 1 || all[0].Name != store.DownstreamGate("smtp") || all[0].Reason != "it answered 429, Retry-After 2h" || all[0].Until.Sub(all[0].Since) != time.Minute {
			t.Errorf("partition %d: %+v", i, all)
		}
	}
	for _, one := range p.breakers("smtp") {
		if one.State != breaker.Closed || one.Window != (breaker.Counts{}) {
			t.Errorf("the breaker heard of it: %+v", one)
		}
	}
	all, err := p.store.Adaptations(t.Context())
	must(t, err)
	if len(all) != 1 || all[0].Refused != 4 {
		t.Errorf("refused calls: %+v", all)
	}
	for i, attempts := range []int{1, 0, 0, 0} {
		sight, err := p.store.Look(t.Context(), admission.Key{Tenant: jobs[i]["tenant"].(string), ID: jobs[i]["id"].(string)})
		must(t, err)
		if sight.Record.Attempts != attempts || sight.Place != admission.PlaceLater {
			t.Errorf("job %d: %d attempts, %s", i, sight.Record.Attempts, sight.Place)
		}
	}
}
