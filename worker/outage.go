package worker

import (
	"sync/atomic"
	"time"

	"github.com/headgate/headgate/internal/outage"
)

// The pauses between two tries of a call while Redis is away.
const (
	firstPause = 20 * time.Millisecond
	lastPause  = time.Second
)

// trouble returns one goroutine's dealings with a Redis that is away.
func (w *Worker) trouble(what string) *outage.Trouble {
	return w.watch.Trouble(what, firstPause, lastPause)
}

// sampled lets one warning through in a while. Its zero value is ready; several goroutines may use it.
type sampled struct {
	next atomic.Int64 // when the next one may pass, in nanoseconds since the Unix epoch
}

const sampledEvery = time.Second

func (s *sampled) allow() bool {
	now := time.Now().UnixNano()
	next := s.next.Load()
	return now >= next && s.next.CompareAndSwap(next, now+int64(sampledEvery))
}
