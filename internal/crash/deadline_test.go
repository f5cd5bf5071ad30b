package crash_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/internal/redistest"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/redisstore"
	"github.com/headgate/headgate/worker"
)

const (
	datedJobs = 100_000
	// serviceJobs of them are left to a worker as users run it.
	serviceJobs  = 8_000
	datedTenants = 20
	datedSlots   = 512
	// lateness is the time from a worker's look at its clock to the first line of a handler on a busy machine.
	lateness = 5 * time.Second
)

// TestDeadlinesAreKept asserts L8 for a hundred thousand jobs of several tenants and classes: each tenant's jobs of a
// class go in the order of their deadlines, ties by arrival, those without one by arrival + horizon; none reaches a
// handler past its deadline by the clock of Redis; and each that does not is counted as expired.
func TestDeadlinesAreKept(t *testing.T) {
	t.Parallel()
	l := &dated{desk: newDesk(t, redistest.Start(t, redistest.Options{})), jobs: map[string]*datedJob{}}
	l.admitAll(newDice(t))
	l.register("w", datedSlots, time.Hour)
	for l.live() > serviceJobs {
		l.work()
	}
	l.runService()
	l.account()
}

// dated is many jobs, and the order in which they started.
type dated struct {
	*desk
	mu     sync.Mutex
	jobs   map[string]*datedJob
	starts []string // tokens and keys, "TOKEN KEY"
	// late counts the jobs that were refused for a deadline that had passed.
	late int
}

type datedJob struct {
	lane     string
	deadline time.Time
	score    time.Time
	seq      uint64
	started  bool
}

// admitAll has two producers: their jobs interleave.
func (l *dated) admitAll(dice *rand.Rand) {
	l.Helper()
	seeds := []uint64{dice.Uint64(), dice.Uint64()}
	var producing sync.WaitGroup
	for of, seed := range seeds {
		producing.Go(func() {
			own := rand.New(rand.NewPCG(seed, 0))
			for n := 0; n < datedJobs/len(seeds); n += store.MaxBatchJobs {
				l.admitSome(own, of, n, min(store.MaxBatchJobs, datedJobs/len(seeds)-n))
			}
		})
	}
	producing.Wait()
	if len(l.jobs)+l.late != datedJobs {
		l.Fatalf("%d jobs entered and %d came too late, of %d", len(l.jobs), l.late, datedJobs)
	}
}

func (l *dated) admitSome(dice *rand.Rand, of, first, count int) {
	batch := make([]store.Candidate, count)
	now := time.Now().Truncate(time.Microsecond)
	for i := range batch {
		j := admission.NewJob("t"+strconv.Itoa(dice.IntN(datedTenants)), stormQueues[dice.IntN(2)].Queue, "work", nil)
		j.ID = fmt.Sprintf("%d-%d", of, first+i)
		j.Priority = admission.DefaultClasses()[dice.IntN(3)].Name
		switch dice.IntN(4) {
		case 0: // None.
		case 1: // Many of these come too late.
			j.Deadline = now.Add(time.Duration(500+dice.IntN(8_000)) * time.Millisecond)
		case 2:
			j.Deadline = now.Add(time.Minute + time.Duration(dice.Int64N(int64(2*time.Hour)))).Truncate(time.Microsecond)
		case 3: // Many of these are level.
			j.Deadline = now.Truncate(time.Hour).Add(time.Duration(1+dice.IntN(3)) * time.Hour)
		}
		batch[i] = candidate(j)
	}
	verdicts, err := l.store.Partitions()[0].Admit(l.Context(), 0, batch)
	if err != nil {
		l.Error(err)
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for i, v := range verdicts {
		j := batch[i].Job
		switch {
		case v.Reason == admission.ReasonDeadline && !j.Deadline.IsZero() && time.Now().After(j.Deadline): // The producer was stopped for so long.
			l.late++
		case v.Decision == admission.Admitted:
			l.jobs[j.Tenant+":"+j.ID] = &datedJob{lane: j.Tenant + "/" + j.Queue + "/" + string(j.Priority), deadline: j.Deadline}
		}
	}
}

func (l *dated) live() int64 {
	l.Helper()
	n, err := l.client.HLen(l.Context(), redisstore.Keys(l.store).Jobs()).Result()
	l.check(err)
	return n - l.client.ZCard(l.Context(), redisstore.Keys(l.store).Dead()).Val()
}

// work reads, starts what is in time, and ends all.
func (l *dated) work() {
	l.Helper()
	l.promote()
	leases, err := l.store.Partitions()[0].Read(l.Context(), "w", l.pool.ID(), datedSlots, 5*time.Millisecond, false)
	l.check(err)
	ends := make([]store.Finish, len(leases))
	now := time.Now() // Redis is on this machine.
	for i, lease := range leases {
		ends[i] = complete(lease)
		if !lease.Job.Deadline.IsZero() && now.After(lease.Job.Deadline) {
			ends[i].Outcome = store.Expire
		}
		l.dispatched(lease.Record, lease.Token, ends[i].Outcome == store.Complete)
	}
	for ; len(ends) > 0; ends = ends[min(store.MaxBatchJobs, len(ends)):] {
		_, _, err = l.store.Partitions()[0].Finish(l.Context(), l.pool.ID(), "w", ends[:min(store.MaxBatchJobs, len(ends))])
		l.check(err)
	}
}

// dispatched notes an entry of the ready stream.
func (l *dated) dispatched(r store.Record, token string, starts bool) {
	j := l.jobs[r.Job.Tenant+":"+r.Job.ID]
	j.seq, j.score = r.Seq, r.Job.Deadline
	if j.score.IsZero() {
		j.score = r.Arrival.Add(time.Hour)
	}
	j.started = starts
	l.starts = append(l.starts, token+" "+r.Job.Tenant+":"+r.Job.ID)
}

// runService leaves the rest to a worker: what its handlers see of deadlines.
func (l *dated) runService() {
	l.Helper()
	w, err := worker.New(l.store, worker.Config{Queues: l.pool.Queues, Concurrency: datedSlots, DrainTimeout: time.Second})
	l.check(err)
	worker.Register(w, "work", func(_ context.Context, job worker.Job[[]byte]) error {
		now := time.Now()
		l.mu.Lock()
		defer l.mu.Unlock()
		l.jobs[job.Tenant+":"+job.ID].started = true
		if !job.Deadline.IsZero() && now.After(job.Deadline.Add(lateness)) {
			l.Errorf("law L8: job %s starts %s past its deadline", job.ID, now.Sub(job.Deadline))
		}
		return nil
	})
	for more := true; more; { // Its entries that nobody has read go to the other worker.
		more, err = l.store.Partitions()[0].Reclaim(l.Context(), "w")
		l.check(err)
	}
	ctx, stop := context.WithCancel(l.Context())
	var running sync.WaitGroup
	running.Go(func() {
		if err := w.Run(ctx); err != nil {
			l.Error(err)
		}
	})
	for l.live() > 0 {
		l.pause(10 * time.Millisecond)
	}
	stop()
	running.Wait()
}

// account compares the order of each lane, and the numbers.
func (l *dated) account() {
	l.Helper()
	heads := map[string]*datedJob{}
	for _, line := range l.starts {
		_, key, _ := strings.Cut(line, " ")
		j := l.jobs[key]
		if before := heads[j.lane]; before != nil && (j.score.Before(before.score) || j.score.Equal(before.score) && j.seq < before.seq) {
			l.Fatalf("law L8: %s of %s goes after one that is due at %s and came as number %d: %+v", key, j.lane, before.score, before.seq, j)
		}
		heads[j.lane] = j
	}
	c := l.census()
	started, missed := int64(0), int64(0)
	for key, j := range l.jobs {
		switch {
		case j.started:
			started++
		case j.deadline.IsZero() || time.Now().Before(j.deadline):
			l.Errorf("law L8: job %s never started, and its deadline is %s", key, j.deadline)
		default:
			missed++
		}
	}
	l.Logf("%d started, %d of them looked at for order, %d expired; Redis has %+v", started, len(l.starts), missed, c)
	if c.Died["expired"] != missed || c.Left["completed"] != started || c.Accepted != int64(len(l.jobs)) || missed == 0 {
		l.Errorf("law L8: %d started and %d missed their deadlines, Redis has %+v", started, missed, c)
	}
}
