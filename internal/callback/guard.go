package callback

import (
	"sync"
	"time"

	"github.com/rs/zerolog"
)

// sayEvery is how often panics of one function are logged.
const sayEvery = time.Minute

// Guard calls functions whose panics concern nobody but the log. Several goroutines may use it.
type Guard struct {
	logger zerolog.Logger

	mu struct {
		sync.Mutex
		// next is when a panic of a function is logged again.
		next map[string]time.Time
	}
}

// NewGuard returns a Guard that logs to logger.
func NewGuard(logger zerolog.Logger) *Guard {
	g := &Guard{logger: logger}
	g.mu.next = make(map[string]time.Time)
	return g
}

// Do calls f and reports whether it returned. If it panicked, that is logged with its stack, once a minute for each name. name is the
// field in which users have given the function; there are few.
func (g *Guard) Do(name string, f func()) bool {
	err := Try(func() error {
		f()
		return nil
	})
	if err == nil {
		return true
	}
	if g.due(name, time.Now()) {
		g.logger.Error().Err(err).Str("function", name).Msg("a function of the configuration panicked: the work goes on without it")
	}
	return false
}

func (g *Guard) due(name string, now time.Time) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if now.Before(g.mu.next[name]) {
		return false
	}
	g.mu.next[name] = now.Add(sayEvery)
	return true
}
