package sessions

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/headgate/headgate/internal/load"
	"github.com/headgate/headgate/store"
)

// loads is how busy the sessions are whose calls this server answers, where the policy has workers tell that. What a worker in Go tells of itself
// this server tells of a session, with its heartbeats in the first partition: it knows when it handed a job out, and how and when that came back. While
// nobody asks, nothing is kept and nothing is counted.
//
// Of a session that several servers serve each tells what went through it, and what was told last counts.
type loads struct {
	// every is how often it is to be told, in nanoseconds, as Redis last said; zero is never.
	every atomic.Int64

	mu struct {
		sync.Mutex
		sessions perSession[told]
	}
}

// told is what there is to tell of one session. Its methods do nothing for a nil one; several goroutines may call them.
type told struct {
	counts load.Counts

	mu struct {
		sync.Mutex
		// next is when it is to be told again, queues those that the session serves, nil while that is not known.
		next   time.Time
		queues []string
		// inHand are the jobs that were handed out and have not come back, by the names of their leases.
		inHand map[string]handed
		// use is what the client said of its process, at said.
		use  load.Use
		said time.Time
	}
}

// handed is a job that was handed out.
type handed struct {
	queue, downstream string
	at                time.Time
}

// mostInHand is how many jobs of a session are remembered: as many as it may have slots. Others are of jobs that came back to another server.
const mostInHand = 1000

// Busy is what a client says of its process, each from 0 to 100 percent; nil is not known.
type Busy struct {
	CPU    *float64 `json:"cpu"`
	Memory *float64 `json:"memory"`
}

// use returns what it says, and whether it says anything.
func (b Busy) use() (use load.Use, said bool) {
	part := func(percent *float64) float64 {
		if percent == nil {
			return -1
		}
		return *percent / 100
	}
	return load.Use{CPU: part(b.CPU), Memory: part(b.Memory)}, b.CPU != nil || b.Memory != nil
}

// asked hears how often it is to be told.
func (l *loads) asked(every time.Duration) {
	if l.every.Swap(int64(every)) == 0 || every != 0 {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.mu.sessions = perSession[told]{}
}

// of returns what there is to tell of a session, nil while nobody asks.
func (l *loads) of(worker string) *told {
	if l.every.Load() == 0 {
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	every := time.Duration(l.every.Load())
	if every == 0 {
		return nil
	}
	now := time.Now()
	one, fresh := l.mu.sessions.hear(worker, now)
	if fresh {
		one.mu.next, one.mu.use = now.Add(every), load.Unknown
	}
	return one
}

// forget forgets a session that is over.
func (l *loads) forget(worker string) {
	if l.every.Load() == 0 {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.mu.sessions.all, worker)
}

// due returns what is to be told of a session now, "" for nothing.
func (a *Sessions) due(ctx context.Context, s session, busy Busy) string {
	one := a.loads.of(s.worker)
	if one == nil {
		return ""
	}
	now := time.Now()
	due, known := one.look(now, time.Duration(a.loads.every.Load()), busy)
	if due && !known { // Who took the registration may be another server, or have done so before anybody asked.
		r, err := a.parts[0].Registration(ctx, s.pool, s.worker)
		if err != nil {
			return "" // It is told the next time.
		}
		one.serves(r.Pool)
	}
	if !due {
		return ""
	}
	return one.text(now)
}

// look notes what a client says of its process, and reports whether the session is to be told of now, and whether its queues are known.
func (t *told) look(now time.Time, every time.Duration, busy Busy) (due, known bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if use, said := busy.use(); said {
		t.mu.use, t.mu.said = use, now
	}
	if due = !now.Before(t.mu.next); due {
		t.mu.next = now.Add(every)
	}
	return due, t.mu.queues != nil
}

// serves notes which queues a session serves.
func (t *told) serves(pool store.Pool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.mu.queues = make([]string, len(pool.Queues))
	for i, q := range pool.Queues {
		t.mu.queues[i] = q.Queue
	}
}

// text is what is told.
func (t *told) text(now time.Time) string {
	t.mu.Lock()
	defer t.mu.Unlock()
	if now.Sub(t.mu.said) > store.WorkerLoadLife {
		t.mu.use = load.Unknown
	}
	s := t.counts.Sample(now, t.mu.use, t.mu.queues)
	for _, job := range t.mu.inHand {
		s.AddRunning(job.queue, job.downstream, 1)
	}
	return s.Text()
}

// hand counts a job that is handed out now; clock is the time of its partition. One that is handed out again has begun already, if not by this
// server then when its lease was given.
func (a *Sessions) hand(s session, l *leased, again bool, clock time.Time) {
	one := a.loads.of(s.worker)
	if one == nil {
		return
	}
	now := time.Now()
	job := handed{l.Job.Queue, l.Job.Downstream, now}
	if again {
		job.at = now.Add(-max(clock.Sub(l.began()), 0))
	}
	if one.hands(l.name(), job) && !again && l.Attempts == 0 {
		one.counts.Began(now, l.Job.Queue, l.Job.Downstream, max(clock.Sub(l.Arrival), 0))
	}
}

// hands notes a job that is handed out, and reports whether it was not noted before.
func (t *told) hands(name string, job handed) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if _, known := t.mu.inHand[name]; known {
		return false
	}
	if t.mu.inHand == nil {
		t.mu.inHand = make(map[string]handed)
	}
	if len(t.mu.inHand) >= mostInHand {
		oldest, at := "", job.at
		for other, was := range t.mu.inHand {
			if !was.at.After(at) {
				oldest, at = other, was.at
			}
		}
		delete(t.mu.inHand, oldest)
	}
	t.mu.inHand[name] = job
	return true
}

// holds takes down all that a session holds, as of a time: what was handed out before and is not among it came back to another server.
func (t *told) holds(leases []leased, at time.Time) {
	if t == nil {
		return
	}
	held := make(map[string]bool, len(leases))
	for i := range leases {
		held[leases[i].name()] = true
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	for name, job := range t.mu.inHand {
		if !held[name] && job.at.Before(at) {
			delete(t.mu.inHand, name)
		}
	}
}

// cameBack counts a job that came back: as a worker in Go, one that completed or failed, for as long as its client says that it ran. ran is zero
// where it does not say; then that is from when the job was handed out, here or by another server.
func (a *Sessions) cameBack(ctx context.Context, s session, l *leased, ran time.Duration, ended store.Ended) {
	one := a.loads.of(s.worker)
	if one == nil {
		return
	}
	now := time.Now()
	at, known := one.takes(l.name())
	if ended != store.EndedDone && ended != store.EndedRetried && ended != store.EndedDead {
		return // It says nothing of how jobs run.
	}
	switch {
	case ran > 0:
	case known:
		ran = now.Sub(at)
	default:
		clock, err := l.part.Time(ctx)
		if err != nil {
			return
		}
		ran = max(clock.Sub(l.began()), 0)
	}
	one.counts.Ended(now, l.Job.Queue, l.Job.Downstream, ran, ended != store.EndedDone)
}

// takes forgets a job that was handed out, and returns when that was, if it is known.
func (t *told) takes(name string) (at time.Time, known bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	job, known := t.mu.inHand[name]
	delete(t.mu.inHand, name)
	return job.at, known
}
