package producer_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/internal/redistest"
	"github.com/headgate/headgate/policy"
	"github.com/headgate/headgate/producer"
)

// witness keeps what an observer is told.
type witness struct {
	mu                    sync.Mutex
	begun, ended, decided map[string]int
}

func (w *witness) observer() producer.Observer {
	w.begun, w.ended, w.decided = map[string]int{}, map[string]int{}, map[string]int{}
	note := func(to map[string]int, id string, verdict admission.Verdict, err error) {
		w.mu.Lock()
		defer w.mu.Unlock()
		switch {
		case err == nil:
			to[id+" "+verdict.Decision.String()]++
		case errors.Is(err, admission.ErrRefused):
			to[id+" refused"]++
		default:
			to[id+" failed"]++
		}
	}
	return producer.Observer{
		Enqueuing: func(_ context.Context, job admission.Job) (map[string]string, func(admission.Verdict, error)) {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.begun[job.ID]++
			return nil, func(verdict admission.Verdict, err error) { note(w.ended, job.ID, verdict, err) }
		},
		Decided: func(job admission.Job, verdict admission.Verdict, err error) { note(w.decided, job.ID, verdict, err) },
	}
}

func (w *witness) saw(t *testing.T, what string, got, want map[string]int) {
	t.Helper()
	if !maps.Equal(got, want) {
		t.Errorf("%s: %v, want %v", what, got, want)
	}
}

// TestTheObserverIsToldWhatTheCallerIs: a batch of more than one call, in which all but one tenant is refused after its
// first job, with a job that is not valid, one of an unknown class, and a duplicate.
func TestTheObserverIsToldWhatTheCallerIs(t *testing.T) {
	t.Parallel()
	store := open(t, redistest.Shared(t).Client(t))
	var w witness
	p := newProducer(t, store, producer.Config{Policy: limited(admission.Limit{Tokens: 1, Per: time.Hour, Burst: 1}), Observer: w.observer()})
	var jobs []admission.Job
	begun, ended := map[string]int{}, map[string]int{}
	for i := range 70 {
		j := job(fmt.Sprintf("t%d", i%10))
		j.ID = fmt.Sprintf("j%d", i)
		switch i {
		case 20:
			j.Cost = -1
		case 21:
			j.Priority = "urgent"
		case 30:
			j.Tenant, j.ID = "t0", "j0"
		}
		jobs = append(jobs, j)
		if i == 20 {
			continue
		}
		begun[j.ID]++
		switch {
		case i < 10:
			ended[j.ID+" admitted"]++
		case i == 21:
			ended[j.ID+" failed"]++
		case i == 30:
			ended[j.ID+" duplicate"]++
		default:
			ended[j.ID+" refused"]++
		}
	}
	results, err := p.EnqueueBatch(t.Context(), jobs)
	if err == nil || !errors.Is(results[20].Err, admission.ErrInvalid) {
		t.Fatal(err)
	}
	w.saw(t, "begun", w.begun, begun)
	w.saw(t, "ended", w.ended, ended)
	w.saw(t, "decided", w.decided, ended)
}

// TestAWaitIsOneEnqueuingOfManyAnswers also shows that a redrive is no enqueuing.
func TestAWaitIsOneEnqueuingOfManyAnswers(t *testing.T) {
	t.Parallel()
	store := open(t, redistest.Shared(t).Client(t))
	var w witness
	p := newProducer(t, store, producer.Config{Policy: limited(admission.PerSecond(1).WithBurst(1)), Observer: w.observer()})
	for _, id := range []string{"a", "b"} {
		j := job("acme")
		j.ID = id
		if _, err := p.EnqueueWait(t.Context(), j); err != nil {
			t.Fatal(err)
		}
	}
	if w.decided["b refused"] == 0 {
		t.Errorf("the second job did not wait: %v", w.decided)
	}
	delete(w.decided, "b refused")
	w.saw(t, "ended", w.ended, map[string]int{"a admitted": 1, "b admitted": 1})
	w.saw(t, "decided", w.decided, map[string]int{"a admitted": 1, "b admitted": 1})
	results, err := p.Redrive(t.Context(), admission.Key{Tenant: "acme", ID: "a"})
	if err == nil || !errors.Is(results[0].Err, admission.ErrNotDead) {
		t.Fatalf("%v %+v", err, results)
	}
	w.saw(t, "begun", w.begun, map[string]int{"a": 1, "b": 1})
}

// TestAnObserverThatPanicsChangesNothing, neither what the caller is told nor the headers of the job.
func TestAnObserverThatPanicsChangesNothing(t *testing.T) {
	t.Parallel()
	store := open(t, redistest.Shared(t).Client(t))
	for name, enqueuing := range map[string]func(context.Context, admission.Job) (map[string]string, func(admission.Verdict, error)){
		"at once": func(context.Context, admission.Job) (map[string]string, func(admission.Verdict, error)) {
			panic("at once")
		},
		"at the end": func(context.Context, admission.Job) (map[string]string, func(admission.Verdict, error)) {
			return nil, func(admission.Verdict, error) { panic("at the end") }
		},
	} {
		var said strings.Builder
		p := newProducer(t, store, producer.Config{Policy: new(policy.Unlimited()), Logger: zerolog.New(&said), Observer: producer.Observer{
			Enqueuing: enqueuing, Decided: func(admission.Job, admission.Verdict, error) { panic("decided") },
		}})
		if verdict, err := p.Enqueue(t.Context(), job("acme")); err != nil || verdict.Decision != admission.Admitted {
			t.Errorf("%s: %+v, %v", name, verdict, err)
		}
		if verdict, err := p.EnqueueWait(t.Context(), job("acme")); err != nil || verdict.Decision != admission.Admitted {
			t.Errorf("%s: %+v, %v", name, verdict, err)
		}
		results, err := p.EnqueueBatch(t.Context(), []admission.Job{job("acme"), job("acme")})
		if err != nil || results[0].Err != nil || results[1].Err != nil {
			t.Errorf("%s: %+v, %v", name, results, err)
		}
		if text := said.String(); strings.Count(text, `Observer.Enqueuing"`) != 1 || strings.Count(text, `"Observer.Decided"`) != 1 {
			t.Errorf("%s: the log says\n%s", name, text)
		}
	}
}
