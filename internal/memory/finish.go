package memory

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/fairqueue"
	"github.com/headgate/headgate/internal/memory/internal/times"
	"github.com/headgate/headgate/store"
)

// errToken is what Redis says to a token that is none.
var errToken = errors.New("run script finish: ERR Invalid stream ID specified as stream command argument")

// Finish ends jobs that a worker holds, as store.Partition.Finish.
func (p *Partition) Finish(_ context.Context, pool, worker string, jobs []store.Finish) (ends []store.Ended, more bool, err error) {
	for i := range jobs {
		if !store.IsToken(jobs[i].Token) {
			return nil, false, errToken
		}
	}
	p.write(func(m *model, now int64) {
		ends = m.finish(now, pool, worker, jobs)
		more = m.more
	})
	return ends, more, nil
}

func (m *model) finish(now int64, pool, worker string, jobs []store.Finish) []store.Ended {
	m.more = false
	ends := slices.Repeat([]store.Ended{store.EndedLost}, len(jobs))
	if m.room.Pools[pool] == nil {
		return ends
	}
	c := m.begin(now)
	held := make([]*modelJob, len(jobs))
	for i := range jobs {
		j := m.tokens[jobs[i].Token]
		if j == nil || j.pool.ID != pool || j.entry.Worker == "" || j.key != jobs[i].Key.String() {
			continue
		}
		held[i] = j
		m.release(c, j)
	}
	m.rotate()
	for i, j := range held {
		if j != nil {
			ends[i] = m.outcome(c, j, &jobs[i], worker, now)
		}
	}
	c.WakeFreed()
	c.Refill(pool)
	m.fill(c, now)
	return ends
}

// uncancel forgets that a job was cancelled while it ran, and reports whether it was.
func (m *model) uncancel(j *modelJob) bool {
	if !j.cancelled {
		return false
	}
	j.cancelled, j.because = false, ""
	m.cancelling--
	return true
}

// outcome is what becomes of a job that has left its worker's hands.
func (m *model) outcome(c *fairqueue.Pass, j *modelJob, f *store.Finish, worker string, now int64) store.Ended {
	cancelled := m.uncancel(j)
	text := f.Text[:min(len(f.Text), store.MaxFinishText)]
	switch {
	case f.Outcome == store.Complete:
		m.results.keep(j.key, f.Result, f.KeepResult, now)
		m.leave(j, "completed")
		return store.EndedDone
	case cancelled:
		m.leave(j, "cancelled")
		return store.EndedCancelled
	case f.Outcome == store.Retry:
		return m.retry(j, f.Delay, f.Ran, worker, text, now)
	case f.Outcome == store.Kill:
		j.noted("failed", f.Ran, worker, text, now)
		m.bury(j, f.Reason, text, now)
		return store.EndedDead
	case f.Outcome == store.Expire:
		m.expire(j, now)
		return store.EndedExpired
	}
	if text != "suspect" { // One that waits for others may come often.
		j.noted("released", f.Ran, worker, text, now)
	}
	if delay := m.releaseDelay(j, f.Delay, text, now); delay > 0 {
		m.putOff(j, now+delay)
	} else {
		m.putBack(c, j, now)
	}
	return store.EndedReleased
}

// retry burns an attempt of a job.
func (m *model) retry(j *modelJob, delay, ran time.Duration, worker, text string, now int64) store.Ended {
	j.attempts++
	j.noted("failed", ran, worker, text, now)
	at := now + delay.Microseconds()
	switch {
	case j.attempts >= j.max:
		m.bury(j, "max_attempts", text, now)
		return store.EndedDead
	case j.Dated && at > j.Score:
		m.expire(j, now)
		return store.EndedExpired
	}
	m.putOff(j, at)
	m.retried++
	return store.EndedRetried
}

// mostUnknown is how many times its delay a job of a type that nobody knows stays away at most.
const mostUnknown = 300

// unknownType begins the text of what is handed back for its type, which follows.
const unknownType = store.UnknownType + " "

// releaseDelay is how long a job stays away that is handed back. One of a type that no worker knew that it came to stays longer each
// time in a row, twice as long every second time, but not beyond its deadline.
func (m *model) releaseDelay(j *modelJob, delay time.Duration, text string, now int64) int64 {
	kind, unknown := strings.CutPrefix(text, unknownType)
	if !unknown {
		return delay.Microseconds()
	}
	n := 0
	for _, d := range slices.Backward(j.history) {
		if d.Outcome != "released" || !strings.HasPrefix(d.Text, unknownType) {
			break
		}
		n++
	}
	m.noteUnknown(j.Queue, kind, now)
	us := int64(math.Floor(float64(delay.Microseconds()) * min(math.Pow(2, float64(n-1)/2), mostUnknown)))
	if j.Dated {
		us = max(0, min(us, j.Score-now))
	}
	return us
}

// results are what completed jobs left, by key, for a time.
type results struct {
	by    map[string][]byte
	until *times.Times
}

func newResults() results { return results{map[string][]byte{}, times.New()} }

// keep keeps a result, to the millisecond, and forgets some whose time is over.
func (r *results) keep(key string, result []byte, length time.Duration, now int64) {
	for _, over := range r.until.Passed(now) {
		delete(r.by, over)
	}
	if us := length.Microseconds(); us > 0 {
		r.by[key] = append(make([]byte, 0, len(result)), result...)
		r.until.Put(key, now+(us+999)/1000*1000)
	}
}

// Result returns what a completed job left, as store.Partition.Result.
func (p *Partition) Result(_ context.Context, key admission.Key) (result []byte, err error) {
	err = fmt.Errorf("read result of %s: %w", key, admission.ErrUnknownJob)
	p.read(func(m *model, now int64) {
		if m.results.until.At(key.String()) > now {
			result, err = slices.Clone(m.results.by[key.String()]), nil
		}
	})
	return result, err
}
