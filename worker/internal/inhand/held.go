package inhand

import (
	"context"
	"slices"
	"strings"
	"sync"

	"github.com/headgate/headgate/store"
)

// Held is the jobs that one registration holds as far as this process knows, by token. Its methods may be called
// from several goroutines.
//
//	add ──▶ held ──claim──▶ claimed ──remove──▶ gone
//
// Whoever claims a job tells Redis how it ended: its handler, or a drain that no longer waits for it.
type Held struct {
	mu struct {
		sync.Mutex
		jobs map[string]*heldJob
		// closed says that nothing is added any more.
		closed bool
		// recent collects what is removed while a history is read: it may still stand in that reply. Nil otherwise.
		recent map[string]bool
		// kept are those whose end Redis refuses to take: it says that they are here, but nobody works on them any more.
		kept  map[string]bool
		empty chan struct{} // closed when there are no jobs any more; nil if nobody waits for it
	}
}

type heldJob struct {
	lease   *store.Lease
	claimed bool
	// cancel ends the ctx of the job's handler; nil until that has one.
	cancel context.CancelCauseFunc
}

// NewHeld returns one that holds nothing.
func NewHeld() *Held {
	h := &Held{}
	h.mu.jobs = make(map[string]*heldJob)
	return h
}

// Addition says what add made of a lease.
type Addition int

// What became of a lease.
const (
	Added   Addition = iota
	Known            // it is held already, or was a moment ago, or is kept
	TooLate          // nothing is added any more
)

// Add takes a lease in, unless it is known. Nobody may change it then.
func (h *Held) Add(lease *store.Lease) Addition {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case h.mu.jobs[lease.Token] != nil || h.mu.recent[lease.Token] || h.mu.kept[lease.Token]:
		return Known
	case h.mu.closed:
		return TooLate
	}
	h.mu.jobs[lease.Token] = &heldJob{lease: lease}
	return Added
}

// Knows reports whether a job is held or kept.
func (h *Held) Knows(token string) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.mu.jobs[token] != nil || h.mu.kept[token]
}

// Keep has a job be known, and not begun anew, after it is removed: Redis refuses to take its end.
func (h *Held) Keep(token string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.mu.kept == nil {
		h.mu.kept = make(map[string]bool)
	}
	h.mu.kept[token] = true
}

// Watch gives the means to end the job's handler.
func (h *Held) Watch(token string, cancel context.CancelCauseFunc) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if job := h.mu.jobs[token]; job != nil {
		job.cancel = cancel
	}
}

// Cancel ends the handler of a job. One that has no ctx yet is missed: Redis says it again.
func (h *Held) Cancel(token string, cause error) {
	h.mu.Lock()
	var cancel context.CancelCauseFunc
	if job := h.mu.jobs[token]; job != nil {
		cancel = job.cancel
	}
	h.mu.Unlock()
	if cancel != nil {
		cancel(cause)
	}
}

// Kind is by what Counts tells jobs apart.
type Kind struct{ Queue, Downstream string }

// Counts counts what is held.
func (h *Held) Counts() map[Kind]int64 {
	h.mu.Lock()
	defer h.mu.Unlock()
	counts := map[Kind]int64{}
	for _, job := range h.mu.jobs {
		counts[Kind{job.lease.Job.Queue, job.lease.Job.Downstream}]++
	}
	return counts
}

// Any reports whether anything is held.
func (h *Held) Any() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.mu.jobs) > 0
}

// Claim reports whether the caller is the one to tell Redis how the job ended.
func (h *Held) Claim(token string) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	job := h.mu.jobs[token]
	if job == nil || job.claimed {
		return false
	}
	job.claimed = true
	return true
}

// ClaimRest claims everything that nobody has, in the order of dispatch.
func (h *Held) ClaimRest() []store.Lease {
	h.mu.Lock()
	defer h.mu.Unlock()
	var rest []store.Lease
	for _, job := range h.mu.jobs {
		if !job.claimed {
			job.claimed = true
			rest = append(rest, *job.lease)
		}
	}
	slices.SortFunc(rest, func(a, b store.Lease) int { return strings.Compare(a.Token, b.Token) })
	return rest
}

// Remove forgets a job that has ended.
func (h *Held) Remove(token string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.mu.jobs, token)
	if h.mu.recent != nil {
		h.mu.recent[token] = true
	}
	if len(h.mu.jobs) == 0 && h.mu.empty != nil {
		close(h.mu.empty)
		h.mu.empty = nil
	}
}

// Close lets nothing in any more and returns how much is held.
func (h *Held) Close() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.mu.closed = true
	return len(h.mu.jobs)
}

// None returns a channel that is closed once nothing is held. It is to be asked for after close.
func (h *Held) None() <-chan struct{} {
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.mu.jobs) == 0 {
		done := make(chan struct{})
		close(done)
		return done
	}
	if h.mu.empty == nil {
		h.mu.empty = make(chan struct{})
	}
	return h.mu.empty
}

// BeginHistory is called before a history is read, endHistory after its jobs were added.
func (h *Held) BeginHistory() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.mu.recent = make(map[string]bool)
}

// EndHistory forgets what was held.
func (h *Held) EndHistory() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.mu.recent = nil
}
