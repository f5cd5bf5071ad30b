package loads

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"

	"github.com/headgate/headgate/internal/guard"
	"github.com/headgate/headgate/internal/load"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/worker/internal/inhand"
)

// Teller knows what there is to tell. Ended and Holds may be called from several goroutines, the others by the one that keeps the lease of
// the worker's first partition.
type Teller struct {
	logger zerolog.Logger
	queues []store.QueueWeight
	// window is nil while nobody asks.
	window atomic.Pointer[load.Window]
	mu     struct {
		sync.Mutex

		// held is what each partition has in hand.
		held map[int]*inhand.Held
	}
	// every is how often it is to be told, zero for never; next is when it is; blind says that the process cannot be measured, which was
	// logged.
	every   time.Duration
	next    time.Time
	sampler guard.Sampler
	own     guard.Sampler // of a test
	blind   bool
}

// New returns a Teller of a worker that serves these queues. sampler measures its process; nil is the house's own.
func New(logger zerolog.Logger, queues []store.QueueWeight, sampler guard.Sampler) *Teller {
	t := &Teller{logger: logger, queues: queues, own: sampler}
	t.mu.held = map[int]*inhand.Held{}
	return t
}

// Holds notes which jobs the worker has in hand of a partition.
func (t *Teller) Holds(partition int, held *inhand.Held) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.mu.held[partition] = held
}

// Ended counts a run that completed or failed, while somebody asks.
func (t *Teller) Ended(queue string, took time.Duration, failed bool) {
	if w := t.window.Load(); w != nil {
		w.Ended(time.Now(), queue, took, failed)
	}
}

// Every is how often it is to be told, zero for never.
func (t *Teller) Every() time.Duration { return t.every }

// Asked hears how often it is to be told.
func (t *Teller) Asked(every time.Duration, now time.Time) {
	if every == t.every {
		return
	}
	t.every = every
	if every == 0 {
		t.window.Store(nil)
		t.sampler = nil
		return
	}
	if t.window.Load() == nil {
		t.window.Store(&load.Window{})
	}
	if t.sampler == nil {
		if t.sampler = t.own; t.sampler == nil {
			t.sampler = guard.NewSampler()
		}
		t.use(now) // The next one is about the time since.
	}
	t.next = now.Add(every)
}

// Due returns what is to be told now, "" for nothing.
func (t *Teller) Due(now time.Time) string {
	if t.every == 0 || now.Before(t.next) {
		return ""
	}
	t.next = now.Add(t.every)
	s := load.Sample{Use: t.use(now), Queues: t.window.Load().Sum(now)}
	for _, q := range t.queues {
		if _, ran := s.Queues[q.Queue]; !ran {
			s.Queues[q.Queue] = load.Runs{} // Those of which nothing ran, too.
		}
	}
	t.mu.Lock()
	for _, held := range t.mu.held {
		for queue, n := range held.Queues() {
			runs := s.Queues[queue]
			runs.Running += n
			s.Queues[queue] = runs
		}
	}
	t.mu.Unlock()
	return s.Text()
}

// use measures the process. That it cannot is logged once.
func (t *Teller) use(now time.Time) load.Use {
	sample, err := t.sampler.Sample(now)
	if err != nil {
		if !t.blind {
			t.logger.Warn().Err(err).Msg("load: this process cannot be measured, only how its jobs ran is told")
		}
		t.blind = true
		return load.Unknown
	}
	t.blind = false
	cpu, memory := sample.Parts()
	return load.Use{CPU: cpu, Memory: memory}
}
