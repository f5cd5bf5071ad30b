package worker_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strconv"
	"testing"
	"time"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/internal/guard"
	"github.com/headgate/headgate/internal/load"
	"github.com/headgate/headgate/internal/rollout"
	"github.com/headgate/headgate/policy"
	"github.com/headgate/headgate/producer"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/redisstore"
	"github.com/headgate/headgate/worker"
)

// halfBusy is a process that uses half of the machine's processors and a quarter of its memory.
type halfBusy struct{}

func (halfBusy) Sample(time.Time) (guard.Sample, error) {
	return guard.Sample{CPU: float64(runtime.NumCPU()) / 2, Memory: 256 * megabyte, MachineMemory: 1024 * megabyte}, nil
}

// askForLoad has workers tell how busy they are, or no more.
func (r *rig) askForLoad(rules *policy.LoadRules) {
	r.tb.Helper()
	p := policy.Unlimited()
	p.Load = rules
	if _, err := rollout.Put(r.tb.Context(), r.store, p, rollout.Edit{Author: "ada", Reason: "test", Expected: rollout.AnyVersion}); err != nil {
		r.tb.Fatal(err)
	}
}

// told returns what the only worker told of itself last, and whether it has.
func (r *rig) told() (load.Sample, bool) {
	r.tb.Helper()
	all, err := r.store.WorkerLoads(r.tb.Context())
	if err != nil {
		r.tb.Fatal(err)
	}
	if len(all) == 0 {
		return load.Sample{}, false
	}
	if len(all) > 1 {
		r.tb.Fatalf("%d tell, want one: %v", len(all), all)
	}
	s, err := load.Parse(all[0].Text)
	if err != nil {
		r.tb.Fatal(err)
	}
	return s, true
}

// TestAWorkerTellsHowBusyItIs while the policy asks for it: what its process uses, what runs of each queue and how jobs ended there, those
// of all partitions together; and it stops when the policy does.
func TestAWorkerTellsHowBusyItIs(t *testing.T) {
	t.Parallel()
	for _, partitions := range []int{1, 3} {
		t.Run(strconv.Itoa(partitions), func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			if partitions > 1 {
				r = newRigOfParts(t, partitions)
			}
			done := make(chan struct{})
			config := worker.Config{Concurrency: 20, Lease: 1500 * time.Millisecond, Queues: []store.QueueWeight{{Queue: "mail"}, {Queue: "post"}}}
			a := r.run(r.store, config.MeasuredBy(halfBusy{}), func(w *worker.Worker) {
				worker.Register(w, "send", func(_ context.Context, job worker.Job[string]) error {
					if job.Args == "bad" {
						return worker.Discard(errors.New("as asked"))
					}
					return nil
				})
				worker.Register(w, "hold", func(context.Context, worker.Job[[]byte]) error {
					<-done
					return nil
				})
			})
			defer close(done)
			r.await("it to register", func() bool { return len(r.registrations()) > 0 })
			r.askForLoad(&policy.LoadRules{Every: time.Second})
			var err error
			if r.producer, err = producer.New(r.store, producer.Config{}); err != nil { // One that follows the policy.
				t.Fatal(err)
			}
			r.await("it to tell", func() bool { _, ok := r.told(); return ok })
			for i := range 15 {
				payload, kind := "good", "send"
				if i%5 == 0 {
					payload = "bad"
				}
				if i%5 == 1 {
					kind = "hold"
				}
				j := admission.NewJob(fmt.Sprint("tenant-", i), "mail", kind, []byte(payload))
				j.ID = fmt.Sprint("job-", i)
				if kind == "hold" || payload == "bad" {
					j.Downstream = "smtp"
				}
				r.enqueue(j)
			}
			r.await("all to start or end", func() bool { return len(a.ends("")) == 12 && len(a.starts()) == 15 })
			var s load.Sample
			r.await("them to be told", func() bool { s, _ = r.told(); return s.Queues["mail"].Ended == 12 })
			mail := s.Queues["mail"]
			if mail.Failed != 3 || mail.Running != 3 || mail.Took <= 0 || mail.Percentile(.95) <= 0 || mail.Waited(.95) <= 0 {
				t.Errorf("of mail it tells %+v", mail)
			}
			if smtp := s.Downstreams["smtp"]; len(s.Downstreams) != 1 || smtp.Ended != 3 || smtp.Failed != 3 || smtp.Running != 3 || smtp.Waited(.95) <= 0 {
				t.Errorf("of downstreams it tells %+v", s.Downstreams)
			}
			if post, serves := s.Queues["post"]; !serves || post.Ended+post.Running != 0 {
				t.Errorf("of post it tells %+v, %v", post, serves)
			}
			if s.CPU != .5 || s.Memory != .25 {
				t.Errorf("its process uses %+v", s.Use)
			}
			r.askForLoad(nil)
			key := ""
			for _, name := range r.registrations() {
				if k := redisstore.KeysOf(r.store.Partitions()[0]).Load(name); r.client.Exists(t.Context(), k).Val() == 1 {
					key = k
				}
			}
			left := r.client.PTTL(t.Context(), key).Val()
			if left <= 298*time.Second || left > 300*time.Second {
				t.Errorf("%q is kept for %v, want 300s", key, left)
			}
			r.await("it to tell no more", func() bool { return r.client.PTTL(t.Context(), key).Val() < 297500*time.Millisecond })
		})
	}
}
