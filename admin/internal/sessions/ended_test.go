package sessions

import (
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/headgate/headgate/admin/internal/route"
	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/breaker"
	"github.com/headgate/headgate/internal/redistest"
	"github.com/headgate/headgate/policy"
	"github.com/headgate/headgate/producer"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/redisstore"
)

// TestASessionThatHasEndedIsNotRegisteredAnew: a client ends its session while a call of it shares its slots out, at another server.
func TestASessionThatHasEndedIsNotRegisteredAnew(t *testing.T) {
	t.Parallel()
	server := redistest.Shared(t)
	config := redisstore.Config{Prefix: redistest.Prefix(t), Partitions: 2}
	direct, err := redisstore.Open(t.Context(), server.Client(t), config)
	must(t, err)
	proxy := redistest.NewProxy(t, server.Addr())
	slow, err := redisstore.Open(t.Context(), proxy.Client(t), config)
	must(t, err)
	y, other := &yard{t, New(Config{Store: slow}), slow}, &yard{t, New(Config{Store: direct}), direct}
	view := called[sessionView](y, y.sessions.register, "", `{"queues":[{"queue":"mail"}],"slots":4,"lease":"1m"}`)
	to, err := producer.New(direct, producer.Config{Policy: new(policy.Unlimited())})
	must(t, err)
	jobs := make([]admission.Job, 8) // They are in one partition, and its slots are full: the other one's are to go there.
	for i := range jobs {
		jobs[i] = admission.NewJob(y.tenantIn(0, "acme"), "mail", "send", nil)
	}
	_, err = to.EnqueueBatch(t.Context(), jobs)
	must(t, err)

	reached, resume := make(chan struct{}), make(chan struct{})
	var once sync.Once
	proxy.Decide(func(c redistest.Command) redistest.Action {
		if !c.IsScript() || !strings.Contains(c.Args[0], "register") {
			return redistest.Action{}
		}
		once.Do(func() { close(reached) })
		return redistest.Action{Hold: resume}
	})
	s := session{worker: view.Worker, pool: view.Pool, lease: time.Minute, slots: 4}
	shared, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(shared)
		y.sessions.shareSlots(t.Context(), s)
	}()
	select {
	case <-reached:
	case <-shared:
		t.Fatal("nothing is shared out")
	}
	go func() {
		defer close(ended)
		r := (&http.Request{Header: http.Header{}}).WithContext(t.Context())
		r.SetPathValue("worker", view.Worker)
		if _, err := other.sessions.deregister(&route.Request{Request: r}); err != nil {
			t.Error(err)
		}
	}()
	select {
	case <-ended:
	case <-time.After(300 * time.Millisecond):
	}
	close(resume)
	<-shared
	<-ended
	err = direct.Each(func(i int, part store.Partition) error {
		_, err := part.Registration(t.Context(), view.Pool, view.Worker)
		if err == nil {
			t.Errorf("partition %d has the session again", i)
		}
		return nil
	})
	must(t, err)
}

// TestAProbeThatIsNotBegunIsGivenBack: it is a suspect, and the session has begun another.
func TestAProbeThatIsNotBegunIsGivenBack(t *testing.T) {
	t.Parallel()
	s, err := redisstore.Open(t.Context(), redistest.Shared(t).Client(t), redisstore.Config{Prefix: redistest.Prefix(t), Partitions: 2})
	must(t, err)
	y := &yard{t, New(Config{Store: s}), s}
	to, err := producer.New(s, producer.Config{Policy: new(policy.Unlimited())})
	must(t, err)
	jobs := make([]admission.Job, 2)
	for i := range jobs {
		jobs[i] = admission.NewJob(y.tenantIn(0, "acme"), "mail", "send", nil)
		jobs[i].Downstream = "smtp"
	}
	_, err = to.EnqueueBatch(t.Context(), jobs)
	must(t, err)
	view := called[sessionView](y, y.sessions.register, "", `{"queues":[{"queue":"mail"}],"slots":4,"lease":"1m"}`)
	of := session{worker: view.Worker, pool: view.Pool, lease: time.Minute, slots: 4}
	leases, _, err := y.sessions.take(t.Context(), of, []int{0, 1}, 2, time.Second, false)
	if must(t, err); len(leases) != 2 {
		t.Fatalf("%d leases", len(leases))
	}
	first, probe := &leases[0], &leases[1]
	must(t, first.part.Started(t.Context(), of.pool, of.worker, first.Token, admission.Key{Tenant: first.Job.Tenant, ID: first.Job.ID}))
	probe.Suspect, probe.Period = true, 7
	open := gates{probe.gate(): {State: breaker.HalfOpen, Period: 7, Limit: 1, ProbeTimeout: time.Minute}}
	if ok, err := y.sessions.begin(t.Context(), of, probe, false, open, time.Now()); ok || err != nil {
		t.Fatalf("it begins: %t, %v", ok, err)
	}
	if free, err := s.LeaseRight(t.Context(), "smtp", "another", 1, time.Minute); !free || err != nil {
		t.Errorf("another probe may be: %t, %v", free, err)
	}
}

func must(tb testing.TB, err error) {
	tb.Helper()
	if err != nil {
		tb.Fatal(err)
	}
}
