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

// Teller knows what there is to tell. Began, Ended and Holds may be called from several goroutines, the others by the one that keeps the lease of
// the worker's first partition.
type Teller struct {
	logger zerolog.Logger
	queues []string
	// counts are nil while nobody asks.
	counts atomic.Pointer[load.Counts]
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
	t := &Teller{logger: logger, own: sampler}
	for _, q := range queues {
		t.queues = append(t.queues, q.Queue)
	}
	t.mu.held = map[int]*inhand.Held{}
	return t
}

// Holds notes which jobs the worker has in hand of a partition.
func (t *Teller) Holds(partition int, held *inhand.Held) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.mu.held[partition] = held
}

// Began counts a run that begins, so long after its job was admitted, while somebody asks. A job without a downstream has "".
func (t *Teller) Began(queue, downstream string, wait time.Duration) {
	if c := t.counts.Load(); c != nil {
		c.Began(time.Now(), queue, downstream, wait)
	}
}

// Ended counts a run that completed or failed, while somebody asks. A job without a downstream has "".
func (t *Teller) Ended(queue, downstream string, took time.Duration, failed bool) {
	if c := t.counts.Load(); c != nil {
		c.Ended(time.Now(), queue, downstream, took, failed)
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
		t.counts.Store(nil)
		t.sampler = nil
		return
	}
	if t.counts.Load() == nil {
		t.counts.Store(&load.Counts{})
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
	s := t.counts.Load().Sample(now, t.use(now), t.queues)
	t.mu.Lock()
	for _, held := range t.mu.held {
		for of, n := range held.Counts() {
			s.AddRunning(of.Queue, of.Downstream, n)
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
