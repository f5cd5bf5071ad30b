package tipping_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/internal/memory"
	"github.com/headgate/headgate/internal/rollout"
	"github.com/headgate/headgate/policy"
	"github.com/headgate/headgate/store"
)

// What is served, and who asks.
const (
	slots    = 5
	work     = 50 * time.Millisecond
	capacity = slots * int(time.Second/work) // requests a second
	patience = time.Second                   // of who waits for an answer
	attempts = 4
	pause    = 100 * time.Millisecond // before who was refused asks again, and up to half of it more or less
)

// A run: load, an upset, time to come back, and a time that is judged.
const (
	upsetAt, upsetFor   = 5 * time.Second, 2 * time.Second
	judgedAt, judgedFor = 22 * time.Second, 8 * time.Second
	// backAt is which part of the judged requests is answered in time where a queue has come back.
	backAt = 0.95
	// steps is into how many loads up to the capacity the tipping point is told.
	steps = 50
	// lowLoad and highLoad are those at which it is told how long coming back takes, in whole seconds.
	lowLoad, highLoad = 0.2, 0.8
)

// upset is what happens to a queue for upsetFor.
type upset struct {
	name  string
	stall bool    // no handler goes on
	times float64 // as many requests as otherwise
}

var upsets = []upset{{name: "no service for 2 s", stall: true, times: 1}, {name: "five times the load for 2 s", times: 5}}

// guard is what a policy has against overload.
type guard struct {
	name   string
	policy func() policy.Policy
}

var guards = []guard{
	{"nothing", func() policy.Policy { return with(policy.Queue{}) }},
	{"max_wait", func() policy.Policy { return with(policy.Queue{MaxWait: patience - 2*work}) }},
	{"shedding", func() policy.Policy {
		p := with(policy.Queue{
			MaxWait: patience - 2*work, DoomedPercent: 100,
			Pressure: &policy.PressureRules{TargetWait: patience - 2*work, Interval: policy.MinAdaptiveInterval},
		})
		p.Shedding = &policy.Shedding{
			Order: []admission.Priority{admission.Low, admission.Medium}, Tiers: []string{"basic", policy.StandardTier, "premium"}, Reserve: []admission.Priority{admission.High},
			At: map[string][]string{"MEDIUM": {"low"}, "CRITICAL": {"low", "medium"}},
		}
		return p
	}},
}

func with(queue policy.Queue) policy.Policy {
	p := policy.Unlimited()
	p.Queues = map[string]policy.Queue{"pages": queue}
	return p
}

// site is one run under way.
type site struct {
	*headgate.Client
	waiting sync.Map // from the id of a job to the channel that its handler closes
	ids     atomic.Int64
	began   time.Time

	judged, answered atomic.Int64
	// missed counts who was not answered, asked who asked, by the second after the upset.
	asked, missed [judgedFor/time.Second + judgedAt/time.Second]atomic.Int64
}

// serve is the handler of every job.
func (s *site) serve(u upset) func(context.Context, *headgate.Run[headgate.Raw]) error {
	return func(_ context.Context, job *headgate.Run[headgate.Raw]) error {
		if at := time.Since(s.began); u.stall && at >= upsetAt && at < upsetAt+upsetFor {
			time.Sleep(upsetAt + upsetFor - at) //nolint:forbidigo // in a bubble
		}
		time.Sleep(work) //nolint:forbidigo // in a bubble
		if answer, ok := s.waiting.LoadAndDelete(job.ID); ok {
			close(answer.(chan struct{})) // It holds nothing else.
		}
		return nil
	}
}

// ask reports whether a request is answered, at one of its attempts and before the patience of that is over.
func (s *site) ask(ctx context.Context, class admission.Priority, random *rand.Rand) (bool, error) {
	for range attempts {
		id, answer := strconv.FormatInt(s.ids.Add(1), 10), make(chan struct{})
		s.waiting.Store(id, answer)
		sent := time.Now()
		_, err := s.Enqueue(ctx, headgate.Job{Tenant: "acme", Queue: "pages", ID: id, Priority: class, MaxAttempts: 1, Args: headgate.Raw{Type: "page"}})
		switch {
		case errors.Is(err, headgate.ErrRefused):
			s.waiting.Delete(id)
			time.Sleep(pause/2 + time.Duration(random.Int64N(int64(pause)))) //nolint:forbidigo // in a bubble
			continue
		case err != nil:
			return false, err
		}
		select {
		case <-answer:
			return true, nil
		case <-time.After(patience - time.Since(sent)):
			s.waiting.Delete(id)
		}
	}
	return false, nil
}

// class draws one: a thirteenth is high, three medium, nine low.
func class(random *rand.Rand) admission.Priority {
	switch n := random.IntN(13); {
	case n < 1:
		return admission.High
	case n < 4:
		return admission.Medium
	}
	return admission.Low
}

// comesBack reports whether a queue does that had a load, in parts of what it can serve, and an upset, and how many seconds after it too few of
// those that asked in one were answered for the last time.
func comesBack(t *testing.T, seed uint64, load float64, u upset, g guard) (back bool, after int) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		deployment := store.Single(memory.New(memory.Config{}), io.NopCloser(nil))
		if _, err := rollout.Put(ctx, deployment, g.policy(), rollout.Edit{Author: "tipping", Expected: rollout.AnyVersion}); err != nil {
			t.Fatal(err)
		}
		client, err := headgate.OpenStore(deployment, headgate.Config{})
		if err != nil {
			t.Fatal(err)
		}
		s := &site{Client: client, began: time.Now()}
		w := client.Worker(headgate.WorkerConfig{Queues: headgate.Weights{"pages": 1}, Concurrency: slots})
		headgate.HandleRaw(w, "page", s.serve(u))
		var all sync.WaitGroup
		all.Go(func() {
			if err := w.Run(ctx); err != nil {
				t.Error(err)
			}
		})
		s.arrive(ctx, t, rand.New(rand.NewPCG(seed, 0)), load, u)
		back = float64(s.answered.Load()) >= backAt*float64(s.judged.Load())
		for second := range s.asked {
			if asked := s.asked[second].Load(); asked > 0 && float64(asked-s.missed[second].Load()) < backAt*float64(asked) {
				after = second + 1
			}
		}
		stop()
		all.Wait()
		if err := client.Close(); err != nil {
			t.Error(err)
		}
	})
	return back, after
}

// arrive sends requests by Poisson, and returns when all have been answered or given up.
func (s *site) arrive(ctx context.Context, t *testing.T, random *rand.Rand, load float64, u upset) {
	t.Helper()
	var asking sync.WaitGroup
	defer asking.Wait()
	for {
		rate := load * float64(capacity)
		at := time.Since(s.began)
		if at >= upsetAt && at < upsetAt+upsetFor {
			rate *= u.times
		}
		time.Sleep(time.Duration(random.ExpFloat64() / rate * float64(time.Second))) //nolint:forbidigo // in a bubble
		if at = time.Since(s.began); at >= judgedAt+judgedFor {
			return
		}
		own := rand.New(rand.NewPCG(random.Uint64(), 0)) // What it draws is its own, whoever runs first.
		asking.Go(func() {
			answered, err := s.ask(ctx, class(own), own)
			if err != nil {
				t.Error(err)
			}
			if second := int((at - upsetAt - upsetFor) / time.Second); at >= upsetAt+upsetFor {
				s.asked[second].Add(1)
				if !answered {
					s.missed[second].Add(1)
				}
			}
			if at < judgedAt {
				return
			}
			s.judged.Add(1)
			if answered {
				s.answered.Add(1)
			}
		})
	}
}

// tippingPoint returns the highest load, in parts of the capacity, from which a queue comes back; 0 where it does from none.
func tippingPoint(t *testing.T, seed uint64, u upset, g guard) float64 {
	t.Helper()
	low, high := 0, steps+1 // It comes back from low, not from high.
	for high-low > 1 {
		middle := (low + high) / 2
		if back, _ := comesBack(t, seed, float64(middle)/steps, u, g); back {
			low = middle
		} else {
			high = middle
		}
	}
	return float64(low) / steps
}

// TestAQueueComesBack: what is shed comes back from every load that it can serve but for a tenth, where what is not stays down at half of it.
func TestAQueueComesBack(t *testing.T) {
	seeds, err := strconv.Atoi(cmp.Or(os.Getenv("HEADGATE_SEEDS"), "1"))
	if err != nil || seeds < 1 {
		t.Fatalf("HEADGATE_SEEDS is %q: allowed is a number of seeds, 1 or more", os.Getenv("HEADGATE_SEEDS"))
	}
	var mu sync.Mutex
	points, late := map[string][]float64{}, map[string][]float64{}
	t.Run("seeds", func(t *testing.T) {
		for seed := range seeds {
			for _, u := range upsets {
				for _, g := range guards {
					t.Run(fmt.Sprintf("%d/%s/%s", seed, u.name, g.name), func(t *testing.T) {
						t.Parallel()
						row := u.name + " | " + g.name
						point := tippingPoint(t, uint64(seed)+1, u, g)
						_, low := comesBack(t, uint64(seed)+1, lowLoad, u, g)
						_, high := comesBack(t, uint64(seed)+1, highLoad, u, g)
						mu.Lock()
						defer mu.Unlock()
						points[row] = append(points[row], point)
						late[row+" | low"], late[row+" | high"] = append(late[row+" | low"], float64(low)), append(late[row+" | high"], float64(high))
					})
				}
			}
		}
	})
	var table strings.Builder
	fmt.Fprintf(&table, "\n| upset | policy | comes back from a load of: least | 5 %% | median | 95 %% | most | after, at %.1f: median, 95 %% | at %.1f |\n| --- | --- | --- | --- | --- | --- | --- | --- | --- |\n",
		lowLoad, highLoad)
	for _, u := range upsets {
		for _, g := range guards {
			row := u.name + " | " + g.name
			all := points[row]
			if len(all) == 0 { // It failed, or -run left it out.
				continue
			}
			fmt.Fprintf(&table, "| %s | %.2f | %.2f | %.2f | %.2f | %.2f |", row, at(all, 0), at(all, 0.05), at(all, 0.5), at(all, 0.95), at(all, 1))
			for _, load := range []string{" | low", " | high"} {
				fmt.Fprintf(&table, " %.0f s, %.0f s |", at(late[row+load], 0.5), at(late[row+load], 0.95))
			}
			table.WriteString("\n")
			if g.name == "shedding" && at(all, 0) < 0.9 {
				t.Errorf("%s: with shedding a queue stays down at a load of %.2f", u.name, at(all, 0)+1.0/steps)
			}
			if g.name == "nothing" && at(all, 1) > 0.5 {
				t.Errorf("%s: with nothing a queue comes back from a load of %.2f: then the test shows nothing", u.name, at(all, 1))
			}
		}
	}
	t.Log(table.String())
}

// at returns the value below which a part of all is.
func at(all []float64, part float64) float64 {
	slices.Sort(all)
	return all[int(part*float64(len(all)-1)+0.5)]
}
