package outage

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/rs/zerolog"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/store"
)

// Watch is what several goroutines that call the same Redis know of it. They may use it at once.
type Watch struct {
	logger zerolog.Logger

	mu struct {
		sync.Mutex
		// away is how many of them have no answer, failures how many calls failed since the first of them had none.
		away, failures int
		since          time.Time
		told           bool
	}
}

// NewWatch returns a Watch that logs to logger.
func NewWatch(logger zerolog.Logger) *Watch { return &Watch{logger: logger} }

// Trouble returns one goroutine's dealings with the Redis, by what it calls. Its pauses between two tries are even in [d/2, d), d
// doubling from first to last.
func (w *Watch) Trouble(what string, first, last time.Duration) *Trouble {
	return &Trouble{watch: w, what: what, first: first, last: last}
}

// Trouble is for one goroutine. It ends with Over or with Leave.
type Trouble struct {
	watch       *Watch
	what        string
	first, last time.Duration
	failures    int
	away        bool // it counts in the watch
}

// Failed notes a failure and waits, unless ctx has ended.
func (t *Trouble) Failed(ctx context.Context, err error) {
	if ctx.Err() != nil {
		return
	}
	pause := min(t.last, t.first<<min(t.failures, 10))
	t.Note(err)
	timer := time.NewTimer(pause/2 + rand.N(max(pause/2, 1)))
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

// Note notes a failure. The first of an outage is an error in the log; a slot of a cluster that moves is none unless the next call
// fails, too. What Redis answers to a call with an error, while it answers others, each goroutine says for itself.
func (t *Trouble) Note(err error) {
	t.failures++
	w := t.watch
	if !errors.Is(err, admission.ErrUnavailable) && !store.InDoubt(err) {
		if t.failures == 1 {
			w.logger.Error().Err(err).Str("call", t.what).Msg("redis answers with an error, trying again")
		}
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if !t.away {
		t.away = true
		if w.mu.away++; w.mu.away == 1 {
			w.mu.since, w.mu.failures, w.mu.told = time.Now(), 0, false
		}
	}
	w.mu.failures++
	level := zerolog.DebugLevel
	if !w.mu.told && (t.failures > 1 || !store.IsMoved(err)) {
		w.mu.told, level = true, zerolog.ErrorLevel
	}
	w.logger.WithLevel(level).Err(err).Str("call", t.what).Msg("redis does not answer, trying again")
}

// Over notes a success. The last goroutine that has one ends the outage, which the log says.
func (t *Trouble) Over() {
	if t.failures > 0 {
		t.end(true)
	}
}

// Leave notes that the goroutine gives up.
func (t *Trouble) Leave() { t.end(false) }

func (t *Trouble) end(answered bool) {
	t.failures = 0
	w := t.watch
	w.mu.Lock()
	defer w.mu.Unlock()
	if !t.away {
		return
	}
	t.away = false
	if w.mu.away--; w.mu.away == 0 && w.mu.told && answered {
		w.logger.Info().Int("failures", w.mu.failures).Dur("outage", time.Since(w.mu.since)).Msg("redis answers again")
	}
}
