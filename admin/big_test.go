//go:build unix

package admin_test

import (
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/internal/redistest"
	"github.com/headgate/headgate/internal/rollout"
	"github.com/headgate/headgate/policy"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/redisstore"
)

// TestNothingHoldsRedisUp loads jobs, lanes and tenants with caps, calls every operation that looks, and edits the policy of one tenant
// and of all, and finds no command in the SLOWLOG of Redis that took longer than it may.
func TestNothingHoldsRedisUp(t *testing.T) {
	t.Parallel()
	server := redistest.StartWatched(t)
	jobs, lanes, tenants := server.Size(1_000_000), server.Size(300_000), server.Size(20_000)
	s, err := redisstore.Open(t.Context(), server.Client(t), redisstore.Config{Prefix: redistest.Prefix(t)})
	must(t, err)
	p := newPlantOn(t, s, nil)
	oneCap := func() error {
		p.put("admin", ask{op: "PUT /api/v1/tenants/{tenant}", path: map[string]string{"tenant": "t7"}, body: `{"max_running":9}`})
		return nil
	}
	must(t, oneCap()) // Redis compiles a script when it first meets it, 2 to 3 ms of the largest.
	loadBig(t, s, jobs, lanes, tenants)
	loadTimers(t, s, server.Size(200_000))
	server.Held(t, "loading")

	edit := rollout.Edit{Author: "ada", Expected: rollout.AnyVersion}
	caps := func(most int) {
		_, err := rollout.Change(t.Context(), s, edit, func(current policy.Policy) (policy.Policy, error) {
			current.Tenants = map[string]policy.Tenant{}
			for i := range tenants {
				current.Tenants[fmt.Sprint("t", i)] = policy.Tenant{MaxRunning: most + i%3}
			}
			return current, nil
		})
		must(t, err)
	}
	for _, act := range []struct {
		name string
		do   func() error
	}{
		{"a cap for each", func() error { caps(5); return nil }},
		{"other caps for all", func() error { caps(6); return nil }},
		{"another cap for one", oneCap},
		{"what is left", func() error { _, err := s.Remaining(t.Context(), "mail"); return err }},
		{"that nothing is left", func() error {
			left, err := s.Remaining(t.Context(), "nothing")
			if left.Total() != 0 {
				t.Errorf("%+v of a queue without jobs", left)
			}
			return err
		}},
		{"the deepest", func() error { _, _, err := s.WaitingTenants(t.Context(), "mail", 10); return err }},
		{"a purge", func() error { _, err := s.PurgeQueue(t.Context(), "mail", "", store.Intervention{}); return err }},
		{"waiting", func() error {
			p.want(http.StatusOK, "viewer", ask{op: "GET /api/v1/jobs", query: "place=waiting&limit=1000"})
			return nil
		}},
	} {
		must(t, act.do())
		server.Held(t, act.name)
	}
	for _, op := range p.operations() {
		if strings.HasPrefix(op, "GET ") {
			p.call("admin", p.about(op, "t7"))
			server.Held(t, op)
		}
	}
}

// loadedAtOnce is how many jobs go in a call, as those of headgate enqueue --jsonl do.
const loadedAtOnce = store.MaxBatchJobs / 2

// loadBig admits jobs, a third of which are in lanes of made-up downstreams of one tenant, the others the tenants'.
func loadBig(t *testing.T, s store.Deployment, jobs, lanes, tenants int) {
	t.Helper()
	limits := &[admission.Levels]admission.Limit{}
	version, err := s.PolicyInForce(t.Context())
	must(t, err)
	batch := make([]store.Candidate, 0, loadedAtOnce)
	flush := func() {
		if len(batch) > 0 {
			verdicts, err := s.Partitions()[0].Admit(t.Context(), version, batch)
			must(t, err)
			for _, v := range verdicts {
				must(t, v.Err())
			}
		}
		batch = batch[:0]
	}
	for i := range jobs {
		j := admission.NewJob(fmt.Sprint("t", i%tenants), "mail", "welcome", []byte("hello"))
		if j.ID = strconv.Itoa(i); i < lanes {
			j.Tenant, j.Downstream = fmt.Sprint("evil-", i%1000), fmt.Sprint("d", i)
		}
		batch = append(batch, store.Candidate{Job: &j, Class: 1, Limits: limits})
		if len(batch) == cap(batch) {
			flush()
		}
	}
	flush()
}

// loadTimers admits jobs that wait for a time.
func loadTimers(t *testing.T, s store.Deployment, jobs int) {
	t.Helper()
	limits := &[admission.Levels]admission.Limit{}
	version, err := s.PolicyInForce(t.Context())
	must(t, err)
	for from := 0; from < jobs; from += loadedAtOnce {
		var batch []store.Candidate
		for i := from; i < min(jobs, from+loadedAtOnce); i++ {
			j := admission.NewJob("late", "report", "welcome", nil)
			j.ID, j.Delay = strconv.Itoa(i), time.Hour+time.Duration(i)*time.Millisecond
			batch = append(batch, store.Candidate{Job: &j, Class: 1, Limits: limits})
		}
		_, err := s.Partitions()[0].Admit(t.Context(), version, batch)
		must(t, err)
	}
}
