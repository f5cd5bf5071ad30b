package redisstore

import (
	"errors"
	"fmt"
	"math/bits"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/store"
)

// TestAPoisonJobIsFoundByHalves: n jobs are in the hands of a worker, some of which kill whoever runs them. Its neighbours are in as many
// deaths with it as they can be halved, and in none after; nothing counts against them; and each killer is convicted by as many
// deaths alone as the poison limit says.
func TestAPoisonJobIsFoundByHalves(t *testing.T) {
	t.Parallel()
	for _, row := range []struct{ jobs, killers, workers int }{{1, 1, 1}, {2, 1, 1}, {7, 1, 3}, {64, 1, 1}, {100, 2, 1}, {60, 2, 3}, {60, 0, 3}} {
		t.Run(fmt.Sprintf("%d jobs, %d kill, %d workers", row.jobs, row.killers, row.workers), func(t *testing.T) {
			t.Parallel()
			f := &ward{yard: newYard(t), slots: (row.jobs + row.workers - 1) / row.workers, beside: map[string]int{}, now: ahead()}
			f.run(row.jobs, row.killers, row.workers)
		})
	}
}

// TestAStartIsNotNotedOfAJobThatIsNoLongerTheWorkers: nobody would take the note away, and the next worker that is lost with the job
// would be taken for one that had begun it.
func TestAStartIsNotNotedOfAJobThatIsNoLongerTheWorkers(t *testing.T) {
	t.Parallel()
	f := &ward{yard: newYard(t), beside: map[string]int{}, now: ahead()}
	f.pass(0)
	f.admit(mail("acme", "a"))
	f.work("first", 1, true)
	start := func(worker, token string) error {
		return f.store.Started(t.Context(), yardPool.ID(), worker, token, admission.Key{Tenant: "acme", ID: "a"})
	}
	take := func(worker string) string {
		t.Helper()
		_, err := f.store.Register(t.Context(), worker, yardPool, 1, time.Second)
		check(t, err)
		f.promoteAll()
		leases, err := f.store.Read(t.Context(), worker, yardPool.ID(), 1, -1, false)
		check(t, err)
		if len(leases) != 1 {
			t.Fatalf("%s takes %d jobs", worker, len(leases))
		}
		return leases[0].Token
	}
	lost := take("lost")
	f.pass(time.Minute) // Its lease.
	f.promoteAll()
	if err := start("lost", lost); !errors.Is(err, admission.ErrLeaseLost) {
		t.Errorf("when its pool is gone: %v", err)
	}
	f.pass(time.Minute)
	own := take("own")
	for worker, token := range map[string]string{"lost": lost, "stranger": own} {
		if err := start(worker, token); !errors.Is(err, admission.ErrLeaseLost) {
			t.Errorf("%s: %v", worker, err)
		}
	}
	if n := f.client.Exists(t.Context(), f.store.Keys().Started()).Val(); n != 0 {
		t.Error("a start is noted")
	}
	check(t, start("own", own))
}

// ward is workers by hand, whose jobs named "kill" kill them.
type ward struct {
	*yard
	slots, rounds  int
	now            int64
	deaths, begins int
	// beside is how often a neighbour was running when its worker died, by id.
	beside map[string]int
}

func (f *ward) run(jobs, killers, workers int) {
	f.pass(0)
	all := make([]admission.Job, jobs)
	for i := range all {
		all[i] = mail("acme", fmt.Sprint("job-", i))
		if i*killers%jobs < killers {
			all[i] = mail("acme", fmt.Sprint("kill-", i))
		}
	}
	f.admit(all...)
	f.work("first", jobs, true) // All die together first, whoever is to blame.
	for f.left() > 0 {
		if f.rounds++; f.rounds > 100 {
			f.tb.Fatalf("%d jobs are left after %d deaths", f.left(), f.deaths)
		}
		for w := range workers {
			f.work(fmt.Sprintf("w%d-%d", w, f.rounds), f.slots, false)
		}
	}
	halvings := bits.Len(uint(jobs - 1))
	for id, n := range f.beside {
		if n > 1+halvings {
			f.tb.Errorf("%s was in %d deaths, want %d at most", id, n, 1+halvings)
		}
	}
	if most := 1 + killers*(halvings+store.DefaultPoisonLimit); f.deaths > most {
		f.tb.Errorf("%d workers died, want %d at most", f.deaths, most)
	}
	c, err := f.store.Census(f.tb.Context())
	check(f.tb, err)
	if c.Left["completed"] != int64(jobs-killers) || c.Died["poison"] != int64(killers) || !c.Conserved() {
		f.tb.Errorf("got %+v", c)
	}
	if killers == 0 && (f.begins != jobs || f.rounds != 1) {
		f.tb.Errorf("%d jobs that kill nobody began %d times in %d rounds", jobs, f.begins, f.rounds)
	}
	keys := f.store.Keys()
	if n := f.client.Exists(f.tb.Context(), keys.Started(), keys.Suspects(), keys.Base()+"begun").Val(); n != 0 {
		f.tb.Errorf("%d hashes of suspects are left", n)
	}
}

// pass lets time pass.
func (f *ward) pass(d time.Duration) {
	f.now += d.Microseconds()
	f.store.conn.Now = strconv.FormatInt(f.now, 10)
}

func (f *ward) left() int64 {
	c, err := f.store.Census(f.tb.Context())
	check(f.tb, err)
	return c.Live - c.Dead
}

// work lets a worker take what it can, begin what it may, and die or complete it.
func (f *ward) work(name string, slots int, dies bool) {
	ctx := f.tb.Context()
	_, err := f.store.Register(ctx, name, yardPool, slots, time.Second)
	check(f.tb, err)
	f.promoteAll()
	leases, err := f.store.Read(ctx, name, yardPool.ID(), slots, -1, false)
	check(f.tb, err)
	var running, back []store.Finish
	lost := 0
	for _, l := range leases {
		if l.Suspect {
			err = f.store.Started(ctx, yardPool.ID(), name, l.Token, admission.Key{Tenant: "acme", ID: l.Job.ID})
			if errors.Is(err, store.ErrBeside) {
				release := l.Finish(store.Release)
				release.Delay, release.Text = time.Second, "suspect"
				back = append(back, release)
				continue
			}
			check(f.tb, err)
		}
		running = append(running, l.Finish(store.Complete))
		dies = dies || strings.HasPrefix(l.Job.ID, "kill")
		if lost += l.Lost; l.Lost > 0 && !strings.HasPrefix(l.Job.ID, "kill") {
			f.tb.Errorf("%d deaths count against %s", l.Lost, l.Job.ID)
		}
	}
	if lost > 0 && len(running) > 1 {
		f.tb.Errorf("a job against which a death counts runs beside %d others", len(running)-1)
	}
	f.finishAll(name, back)
	if !dies {
		f.begins += len(running)
		f.finishAll(name, running)
		for more := true; more; {
			more, err = f.store.Reclaim(ctx, name)
			check(f.tb, err)
		}
	} else {
		f.deaths++
		for _, r := range running {
			if strings.HasPrefix(r.Key.ID, "job") {
				f.beside[r.Key.ID]++
			}
		}
	}
	f.pass(time.Minute) // The lease.
	f.promoteAll()
	f.pass(time.Minute) // What a suspect waits.
}

func (f *ward) finishAll(name string, all []store.Finish) {
	for len(all) > 0 {
		n := min(len(all), store.MaxBatchJobs)
		ends, _, err := f.store.Finish(f.tb.Context(), yardPool.ID(), name, all[:n])
		check(f.tb, err)
		for _, end := range ends {
			if end == store.EndedLost {
				f.tb.Errorf("a lease is lost")
			}
		}
		all = all[n:]
	}
}
