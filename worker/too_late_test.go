package worker_test

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate/headgate/breaker"
	"github.com/headgate/headgate/internal/redistest"
	"github.com/headgate/headgate/store/redisstore"
	"github.com/headgate/headgate/worker"
)

// holdUp delays the calls of a script that is() knows until a deadline, which may be set later, has passed, and returns how many
// there were.
func holdUp(proxy *redistest.Proxy, deadline *atomic.Pointer[time.Time], is func(redistest.Command) bool) *atomic.Int64 {
	var calls atomic.Int64
	proxy.Decide(func(c redistest.Command) redistest.Action {
		if !c.IsScript() || !is(c) {
			return redistest.Action{}
		}
		calls.Add(1)
		return redistest.Action{Delay: max(0, deadline.Load().Sub(redistest.Now())+50*time.Millisecond)}
	})
	return &calls
}

// soon is long enough for a job to be read before it, and shorter than a call may take.
const soon = 1500 * time.Millisecond

// TestASuspectThatIsNotedTooLateIsNotStarted holds the note of its start up until the deadline is over.
func TestASuspectThatIsNotedTooLateIsNotStarted(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	late := job("send", "late")
	late.Deadline = redistest.Now().Add(soon)
	var deadline atomic.Pointer[time.Time]
	deadline.Store(&late.Deadline)
	r.enqueue(late)
	r.lose(1)
	proxy := redistest.NewProxy(t, r.server.Addr())
	notes := holdUp(proxy, &deadline, func(c redistest.Command) bool {
		return len(c.Args) == 7 && c.Args[3] == pool.ID() && c.Args[6] == "acme:late"
	})
	a := r.runWithTimers(r.open(proxy.Client(t)), worker.Config{}, on("send", nothing))
	if c := r.idle(); c.Died["expired"] != 1 {
		t.Errorf("got %+v", c)
	}
	if notes.Load() == 0 {
		t.Skip("this machine was too slow: the deadline was over before the job was read")
	}
	r.await("the event", func() bool { return a.said("late") == "expired(deadline)" })
	if n := len(a.starts()); n != 0 {
		t.Errorf("%d jobs were started", n)
	}
	if left := r.client.HLen(t.Context(), redisstore.Keys(r.store).Started()).Val(); left != 0 {
		t.Errorf("%d notes of a start are left", left)
	}
}

// TestAProbeThatIsLeasedTooLateIsNotStartedAndGivenBack holds the lease of a probe up until the deadline is over. The next job is
// the probe then.
func TestAProbeThatIsLeasedTooLateIsNotStartedAndGivenBack(t *testing.T) {
	t.Parallel()
	r := newRigOfParts(t, 2)
	late := to("pay", "late")
	var deadline atomic.Pointer[time.Time]
	deadline.Store(new(time.Time))
	proxy := redistest.NewProxy(t, r.server.Addr())
	var back atomic.Int64
	leases := holdUp(proxy, &deadline, func(c redistest.Command) bool {
		probing := len(c.Args) == 8 && c.Args[3] == "" && c.Args[4] == "pay"
		if probing && c.Args[6] == "0" {
			back.Add(1)
		}
		return probing && c.Args[6] != "0"
	})
	s, err := redisstore.Open(t.Context(), proxy.Client(t), redisstore.Config{Partitions: 2})
	if err != nil {
		t.Fatal(err)
	}
	r.halfOpen("pay")
	config := worker.Config{Breaker: breaker.Config{MaxProbes: 1, SuccessThreshold: 1}}
	a := r.runWithTimers(s, config, on("send", nothing))
	r.await("a half-open breaker", func() bool { return r.everywhere(t.Context(), breaker.HalfOpen) })
	late.Deadline = redistest.Now().Add(soon)
	deadline.Store(&late.Deadline)
	r.enqueue(late)
	r.await("its end", func() bool { return len(a.ends("late")) > 0 || r.census().Dead > 0 })
	if leases.Load() == 0 {
		t.Skip("this machine was too slow: the deadline was over before the job was read")
	}
	r.await("the event", func() bool { return a.said("late") == "expired(deadline)" })
	if n := len(a.starts()); n != 0 {
		t.Errorf("%d jobs were started", n)
	}
	r.await("the probe's lease to be given back", func() bool { return back.Load() == 1 })
	r.enqueue(to("pay", "next"))
	if c := r.idle(); c.Left["completed"] != 1 || c.Died["expired"] != 1 {
		t.Errorf("got %+v", c)
	}
}
