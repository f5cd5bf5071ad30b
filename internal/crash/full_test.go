package crash_test

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/internal/redistest"
	"github.com/headgate/headgate/policy"
	"github.com/headgate/headgate/producer"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/worker"
)

const fullMemory = 16 << 20

// TestAFullRedisStillDrains asserts L4 and L9 in a Redis without room: jobs are refused with a reason, by the rule that
// leaves a tenth of maxmemory free or by Redis itself; everything that takes jobs away goes on, while whatever that frees
// is taken by others at once; and when there is room again, jobs enter.
func TestAFullRedisStillDrains(t *testing.T) {
	t.Parallel()
	for name, byRule := range map[string]bool{"by the rule": true, "by others' data": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFull(t)
			f.lose() // While there is room.
			if byRule {
				f.enqueueUntilRefused()
				if n := f.rejected(); n > 0 {
					t.Errorf("Redis refused %d writes of admit, the rule should have been first", n)
				}
			} else {
				f.crowdOut()
			}
			f.verbs()
			f.drainByService()
			f.makeRoom()
		})
	}
}

// full is a small Redis and how much of it others hold.
type full struct {
	*desk
	sdk      *producer.Producer
	admitted int
	hogs     int
}

func newFull(t *testing.T) *full {
	t.Helper()
	server := redistest.Start(t, redistest.Options{MaxMemory: strconv.Itoa(fullMemory)})
	f := &full{desk: newDesk(t, server)}
	limits := policy.Unlimited()
	var err error
	f.sdk, err = producer.New(f.store, producer.Config{Policy: &limits, Timeout: 20 * time.Second})
	f.check(err)
	return f
}

// enqueue asks for some jobs with large payloads, and says whether one was refused for want of memory.
func (f *full) enqueue(n, payload int) (refused bool) {
	f.Helper()
	jobs := make([]admission.Job, n)
	for i := range jobs {
		jobs[i] = admission.NewJob("t"+strconv.Itoa(i%5), "mail", "work", make([]byte, payload))
		if i%8 == 0 {
			jobs[i].Delay = time.Duration(200+i) * time.Millisecond
		}
	}
	results, _ := f.sdk.EnqueueBatch(f.Context(), jobs) // Each result tells.
	for _, r := range results {
		switch {
		case r.Err == nil:
			f.admitted++
		case errors.Is(r.Err, admission.ErrOutOfMemory) && r.Verdict.ID != "":
			refused = true
		default:
			f.Fatalf("enqueue: %v", r.Err)
		}
	}
	return refused
}

// lose leaves jobs in the hands of a worker that is not heard of again, and dead letters.
func (f *full) lose() {
	f.Helper()
	f.register("gone", 32, 300*time.Millisecond)
	f.enqueue(64, 3000)
	held := f.read("gone", 32)
	f.finish(held[:4], func(l store.Lease) store.Finish {
		end := endAs(l, store.Kill)
		end.Reason = "discarded"
		return end
	})
}

func (f *full) enqueueUntilRefused() {
	f.Helper()
	for payload := 3000; !f.enqueue(32, payload); payload = 8000 - payload { // 5000: under a key of its own.
		if f.used() > fullMemory*3/4 {
			f.pause(20 * time.Millisecond) // The rule looks every 100 ms: what comes in between must not fill the last tenth.
		}
	}
	if used := f.used(); used < fullMemory*85/100 || used > fullMemory {
		f.Errorf("refused with %d bytes used of %d", used, fullMemory)
	}
	if c := f.census(); c.Accepted != int64(f.admitted) {
		f.Errorf("law L4: %d jobs were admitted, Redis has %+v", f.admitted, c)
	}
}

// crowdOut fills Redis with other data between two looks of admit at the memory, until Redis itself refuses a job.
func (f *full) crowdOut() {
	f.Helper()
	f.enqueue(500, 2000)
	for deadline := time.Now().Add(time.Minute); f.rejected() == 0; {
		if time.Now().After(deadline) {
			f.Fatal("admit always looked first")
		}
		f.free()
		for ; f.used() < fullMemory*3/4; f.hogs++ { // Little is left to do between two looks.
			f.check(f.client.Set(f.Context(), "hog:"+strconv.Itoa(f.hogs), strings.Repeat("x", 1<<18), 0).Err())
		}
		for f.enqueue(1, 100) { // It has looked now, and found room.
			f.pause(20 * time.Millisecond)
		}
		f.hog()
		f.enqueue(1, 100)
	}
	before := f.census()
	f.hog()
	if !f.enqueue(64, 100) || f.census().Accepted != before.Accepted {
		f.Errorf("jobs entered a Redis that is full: %+v, then %+v", before, f.census())
	}
}

// hog writes until Redis refuses, in smaller and smaller pieces.
func (f *full) hog() {
	f.Helper()
	for size := 1 << 20; size >= 1<<9; {
		err := f.client.Set(f.Context(), "hog:"+strconv.Itoa(f.hogs), strings.Repeat("x", size), 0).Err()
		switch {
		case err == nil:
			f.hogs++
		case redis.HasErrorPrefix(err, "OOM"):
			size /= 2
		default:
			f.Fatal(err)
		}
	}
}

// free takes all of that back.
func (f *full) free() {
	f.Helper()
	for ; f.hogs > 0; f.hogs-- {
		f.check(f.client.Del(f.Context(), "hog:"+strconv.Itoa(f.hogs-1)).Err())
	}
}

// verbs does once all that takes jobs away, each in a Redis that refuses a write of half a kilobyte.
func (f *full) verbs() {
	f.Helper()
	step := func(name string, do func() error) {
		f.Helper()
		f.hog()
		if err := do(); err != nil {
			f.Errorf("%s in a full Redis: %v", name, err)
		}
	}
	var held []store.Lease
	step("register", func() error {
		_, err := f.store.Partitions()[0].Register(f.Context(), "w", stormPool, 16, time.Minute)
		return err
	})
	step("heartbeat", func() error {
		_, err := f.store.Partitions()[0].Heartbeat(f.Context(), "w", time.Minute, "")
		return err
	})
	step("gate", func() error {
		_, _, err := f.store.SetGate(f.Context(), store.Gate{Name: store.TenantGate("t0"), Limit: 5, By: store.Intervention{Reason: "full"}})
		return err
	})
	step("promote and reclaim of a worker that is gone", func() error {
		for deadline := time.Now().Add(30 * time.Second); f.census().Ready > 16; { // What the lost worker held, and what the other may have.
			if time.Now().After(deadline) {
				return fmt.Errorf("%+v after half a minute", f.census())
			}
			p, err := f.store.Partitions()[0].Promote(f.Context(), "s", 20*time.Millisecond)
			if err != nil {
				return err
			}
			f.pause(max(time.Millisecond, min(p.Next, 10*time.Millisecond)))
			f.hog()
		}
		return nil
	})
	step("read", func() (err error) {
		held, err = f.store.Partitions()[0].Read(f.Context(), "w", stormPool.ID(), 16, -1, false)
		return err
	})
	if len(held) < 5 {
		f.Fatalf("%d jobs were read, want 5 at least", len(held))
	}
	for i, outcome := range everyOutcome {
		step("finish as "+string(outcome), func() error {
			end := endAs(held[i], outcome)
			end.Reason = "full"
			ends, _, err := f.store.Partitions()[0].Finish(f.Context(), stormPool.ID(), "w", []store.Finish{end})
			if err == nil && ends[0] == store.EndedLost {
				err = errors.New("lost")
			}
			return err
		})
	}
	step("cancel of a running job", func() error {
		running, _, err := f.store.Cancel(f.Context(), endAs(held[5], store.Complete).Key, store.Intervention{Reason: "full"})
		if err == nil && !running {
			err = errors.New("it is not running")
		}
		return err
	})
	step("purge", func() error {
		purged, err := f.store.Purge(f.Context(), []admission.Key{endAs(held[2], store.Kill).Key}, store.Intervention{})
		if err == nil && !purged[0] {
			err = errors.New("it was no dead letter")
		}
		return err
	})
	step("suspend", func() error {
		return f.store.Suspend(f.Context(), store.QueueGate("hook"), time.Hour, store.Intervention{Reason: "full"})
	})
	step("gate lifted", func() error {
		_, _, err := f.store.SetGate(f.Context(), store.Gate{Name: store.TenantGate("t0"), Limit: store.Unlimited})
		return err
	})
	step("reclaim", func() error {
		for {
			more, err := f.store.Partitions()[0].Reclaim(f.Context(), "w")
			if err != nil || !more {
				return err
			}
		}
	})
	f.census()
}

// drainByService runs a worker until no job is left but dead letters, in a Redis that stays full.
func (f *full) drainByService() {
	f.Helper()
	w, err := worker.New(f.store, worker.Config{Queues: stormQueues, Concurrency: 16, DrainTimeout: time.Second})
	f.check(err)
	worker.Register(w, "work", func(context.Context, worker.Job[[]byte]) error { return nil })
	ctx, stop := context.WithCancel(f.Context())
	var running sync.WaitGroup
	running.Go(func() {
		if err := w.Run(ctx); err != nil {
			f.Error(err)
		}
	})
	deadline := time.Now().Add(time.Minute)
	for c := f.census(); c.Live != c.Dead; c = f.census() {
		if time.Now().After(deadline) {
			f.Errorf("a full Redis does not drain: %+v", c)
			break
		}
		f.hog()
		f.pause(time.Millisecond)
	}
	stop()
	running.Wait()
	c := f.census()
	f.Logf("%d jobs admitted; left %v, died %v", f.admitted, c.Left, c.Died)
	if c.Accepted != int64(f.admitted) {
		f.Errorf("law L4: %d jobs were admitted, Redis has %+v", f.admitted, c)
	}
}

// makeRoom asserts that jobs enter again once there is room.
func (f *full) makeRoom() {
	f.Helper()
	f.hog()
	if !f.enqueue(1, 100) {
		f.Error("a job entered a full Redis")
	}
	f.free()
	for deadline := time.Now().Add(time.Minute); f.enqueue(1, 100); f.pause(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			f.Fatal("there is room, and jobs are refused")
		}
	}
}

func (f *full) used() (bytes int) {
	f.Helper()
	text, err := f.client.Info(f.Context(), "memory").Result()
	f.check(err)
	_, text, _ = strings.Cut(text, "used_memory:")
	_, err = fmt.Sscan(text, &bytes)
	f.check(err)
	return bytes
}

// rejected counts the writes of admit that Redis has refused: nobody else here sends HSET.
func (f *full) rejected() int64 {
	f.Helper()
	return redistest.CommandStats(f.T, f.client)["hset"].Rejected
}
