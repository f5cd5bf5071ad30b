package gauge

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/breaker"
	"github.com/headgate/headgate/internal/redistest"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/redisstore"
)

func TestMain(m *testing.M) { redistest.Main(m) }

func must(tb testing.TB, err error) {
	tb.Helper()
	if err != nil {
		tb.Fatal(err)
	}
}

func newStore(tb testing.TB) store.Deployment {
	tb.Helper()
	s, err := redisstore.Open(tb.Context(), redistest.Shared(tb).Client(tb), redisstore.Config{Prefix: redistest.Prefix(tb)})
	must(tb, err)
	return s
}

func admit(tb testing.TB, s store.Deployment, queue func(n int) string, tenants, jobs int) {
	tb.Helper()
	limits := &[admission.Levels]admission.Limit{}
	for at := 0; at < jobs; at += store.MaxBatchJobs {
		var batch []store.Candidate
		for n := at; n < min(jobs, at+store.MaxBatchJobs); n++ {
			job := admission.NewJob(fmt.Sprintf("tenant-%d", n%tenants), queue(n), "t", nil)
			job.ID = fmt.Sprintf("j%d", n)
			batch = append(batch, store.Candidate{Job: &job, Class: 1, Limits: limits})
		}
		verdicts, err := s.Partitions()[0].Admit(tb.Context(), 0, batch)
		must(tb, err)
		for _, v := range verdicts {
			must(tb, v.Err())
		}
	}
}

func TestMetricsSayWhatRedisHolds(t *testing.T) {
	t.Parallel()
	s, registry := newStore(t), prometheus.NewPedanticRegistry()
	requests, err := Register(registry, s)
	must(t, err)
	admit(t, s, func(int) string { return "mail" }, 2, 3)
	pool := store.Pool{Queues: []store.QueueWeight{{Queue: "mail", Weight: 1}}}
	_, err = s.Partitions()[0].Register(t.Context(), "w1", pool, 2, time.Minute)
	must(t, err)
	leases, err := s.Partitions()[0].Read(t.Context(), "w1", pool.ID(), 1, -1, false)
	must(t, err)
	_, _, err = s.Partitions()[0].Finish(t.Context(), pool.ID(), "w1", []store.Finish{{
		Token: leases[0].Token, Key: admission.Key{Tenant: leases[0].Job.Tenant, ID: leases[0].Job.ID}, Outcome: store.Kill, Reason: "discarded",
	}})
	must(t, err)
	leases, err = s.Partitions()[0].Read(t.Context(), "w1", pool.ID(), 1, -1, false)
	must(t, err)
	_, _, err = s.Partitions()[0].Finish(t.Context(), pool.ID(), "w1", []store.Finish{{
		Token: leases[0].Token, Key: admission.Key{Tenant: leases[0].Job.Tenant, ID: leases[0].Job.ID}, Outcome: store.Release, Delay: time.Hour,
		Text: store.UnknownType + " t",
	}})
	must(t, err)
	requests.Note("GET /x", 200, time.Millisecond)
	requests.Decided(true, 3)
	requests.Decided(false, 0)
	want := `
# HELP headgate_dead_letters_total Jobs that became dead letters, by reason.
# TYPE headgate_dead_letters_total counter
headgate_dead_letters_total{reason="discarded"} 1
# HELP headgate_http_requests_total Calls of the admin API by route and status.
# TYPE headgate_http_requests_total counter
headgate_http_requests_total{code="200",route="GET /x"} 1
# HELP headgate_jobs_accepted_total Jobs that were admitted.
# TYPE headgate_jobs_accepted_total counter
headgate_jobs_accepted_total 3
# HELP headgate_jobs_unaccounted Accepted jobs that have neither a record nor left for a reason that was counted: 0 where all is well, absent where it is not known.
# TYPE headgate_jobs_unaccounted gauge
headgate_jobs_unaccounted 0
# HELP headgate_queue_jobs Jobs of a queue by place: waiting, ready, running, later, spilled, dead.
# TYPE headgate_queue_jobs gauge
headgate_queue_jobs{place="dead",queue_id="mail"} 1
headgate_queue_jobs{place="later",queue_id="mail"} 1
headgate_queue_jobs{place="ready",queue_id="mail"} 1
headgate_queue_jobs{place="running",queue_id="mail"} 0
headgate_queue_jobs{place="spilled",queue_id="mail"} 0
headgate_queue_jobs{place="waiting",queue_id="mail"} 0
# HELP headgate_redis_up Whether Redis answered this scrape.
# TYPE headgate_redis_up gauge
headgate_redis_up 1
# HELP headgate_unknown_type_total Jobs that workers handed back because they have no handler for their type, by queue.
# TYPE headgate_unknown_type_total counter
headgate_unknown_type_total{queue_id="mail"} 1
# HELP headgate_workers Workers that are registered.
# TYPE headgate_workers gauge
headgate_workers 1
# HELP rate_limit_requests_total Decisions of POST /api/v1/rate-limit/check and /reserve by result.
# TYPE rate_limit_requests_total counter
rate_limit_requests_total{result="allowed"} 1
rate_limit_requests_total{result="denied"} 1
# HELP rate_limit_tokens_consumed_total Tokens that POST /api/v1/rate-limit/check and /reserve charged.
# TYPE rate_limit_tokens_consumed_total counter
rate_limit_tokens_consumed_total 3
`
	must(t, testutil.GatherAndCompare(registry, strings.NewReader(want), "headgate_dead_letters_total", "headgate_http_requests_total",
		"headgate_jobs_accepted_total", "headgate_jobs_unaccounted", "headgate_queue_jobs", "headgate_redis_up", "headgate_unknown_type_total", "headgate_workers", "rate_limit_requests_total", "rate_limit_tokens_consumed_total"))
	if problems, err := testutil.GatherAndLint(registry); err != nil || len(problems) > 0 {
		t.Errorf("%v %v", problems, err)
	}
}

// TestLabelsAreBounded: tenants are no label, and queues beyond the bound share one.
func TestLabelsAreBounded(t *testing.T) {
	t.Parallel()
	store, registry := newStore(t), prometheus.NewRegistry()
	_, err := Register(registry, store)
	must(t, err)
	const queues = MaxQueues + 100
	admit(t, store, func(n int) string { return fmt.Sprintf("queue-%04d", n%queues) }, 1000, 2*queues)
	began := time.Now()
	families, err := registry.Gather()
	must(t, err)
	t.Logf("%d queues and 1,000 tenants: %s", queues, time.Since(began))
	names, others := map[string]bool{}, 0.0
	for _, family := range families {
		for _, metric := range family.GetMetric() {
			for _, label := range metric.GetLabel() {
				if strings.Contains(label.GetValue(), "tenant-") {
					t.Errorf("%s has the label %s", family.GetName(), label)
				}
				if label.GetName() != "queue_id" {
					continue
				}
				names[label.GetValue()] = true
				if label.GetValue() == Other && family.GetName() == "throttle_queue_depth" {
					others += metric.GetGauge().GetValue()
				}
			}
		}
	}
	if len(names) != MaxQueues+1 || others != 200 {
		t.Errorf("%d names of queues, %g jobs in the others", len(names), others)
	}
}

// TestBreakersShowTheIllFirst: those that are not closed keep their names, whoever else there is.
func TestBreakersShowTheIllFirst(t *testing.T) {
	t.Parallel()
	s, registry := newStore(t), prometheus.NewRegistry()
	_, err := Register(registry, s)
	must(t, err)
	for n := range MaxDownstreams + 5 {
		_, err := s.ForceBreaker(t.Context(), fmt.Sprintf("a%03d", n), breaker.Closed, 0, store.Intervention{})
		must(t, err)
	}
	_, err = s.ForceBreaker(t.Context(), "z", breaker.Open, 0, store.Intervention{})
	must(t, err)
	families, err := registry.Gather()
	must(t, err)
	got := map[[2]string]float64{} // by downstream and state
	trips, forced := 0, 0
	for _, family := range families {
		for _, metric := range family.GetMetric() {
			switch family.GetName() {
			case "circuit_breaker_state":
				got[[2]string{metric.GetLabel()[0].GetValue(), metric.GetLabel()[1].GetValue()}] = metric.GetGauge().GetValue()
			case "circuit_breaker_trips_total":
				trips++
			case "circuit_breaker_transitions_total": // from, service_id, to
				if l := metric.GetLabel(); l[1].GetValue() == "z" && l[0].GetValue() == "closed" && l[2].GetValue() == "open" && metric.GetCounter().GetValue() == 1 {
					forced++
				}
			}
		}
	}
	if len(got) != 3*(MaxDownstreams+1) || trips != MaxDownstreams {
		t.Errorf("%d series of states, %d of trips", len(got), trips)
	}
	if forced != 1 {
		t.Errorf("no transition of z is counted")
	}
	for labels, want := range map[[2]string]float64{{"z", "open"}: 1, {"z", "closed"}: 0, {"a000", "closed"}: 1, {Other, "closed"}: 6, {Other, "open"}: 0} {
		if got[labels] != want {
			t.Errorf("%v is %g, want %g", labels, got[labels], want)
		}
	}
}

// TestPressureIsShownByQueue: of a queue that is measured alone, as long as the measurement holds, and what answers told of it.
func TestPressureIsShownByQueue(t *testing.T) {
	t.Parallel()
	s, registry := newStore(t), prometheus.NewPedanticRegistry()
	requests, err := Register(registry, s)
	must(t, err)
	queues := []store.QueueSettings{
		{Queue: "mail", Classes: admission.DefaultClasses(), Horizon: time.Hour},
		{Queue: "old", Classes: admission.DefaultClasses(), Horizon: time.Hour},
		{Queue: "other", Classes: admission.DefaultClasses(), Horizon: time.Hour},
	}
	must(t, s.PutPolicy(t.Context(), store.PolicyUpdate{Version: 1, Edit: "e", Text: []byte("{}"), Window: time.Minute, Queues: queues, Pressured: []string{"mail", "old"}}))
	_, err = s.Partitions()[0].Promote(t.Context(), "s", time.Minute)
	must(t, err)
	for queue, life := range map[string]time.Duration{"mail": time.Hour, "old": -time.Second} {
		to := store.Press{Owner: "s", Version: 1, Queue: queue, Pressure: admission.Pressure{Level: admission.PressureHigh, Score: 0.9}, Life: life}
		_, err = s.Press(t.Context(), to)
		must(t, err)
	}
	requests.Signalled("mail", admission.PressureHigh)
	want := `
# HELP backpressure_level How much a queue is pressed that the policy has measured: 1 none, 2 low, 3 medium, 4 high, 5 critical.
# TYPE backpressure_level gauge
backpressure_level{service_id="mail"} 4
backpressure_level{service_id="old"} 1
# HELP backpressure_signals_sent_total Answers of this server that told how much a queue is pressed, by level.
# TYPE backpressure_signals_sent_total counter
backpressure_signals_sent_total{level="HIGH",service_id="mail"} 1
`
	must(t, testutil.GatherAndCompare(registry, strings.NewReader(want), "backpressure_level", "backpressure_signals_sent_total"))
}
