package crash_test

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/producer"
	"github.com/headgate/headgate/scheduler"
	"github.com/headgate/headgate/store/redisstore"
	"github.com/headgate/headgate/worker"
)

const (
	everysecKills = 5
	// sampleStep is how often the length of the journal of Redis is looked at.
	sampleStep = 50 * time.Millisecond
	// everysecLoss is what appendfsync everysec may lose. While a flush takes its time Redis holds writes back besides,
	// for up to slowDisk, and answers all the same.
	everysecLoss, slowDisk = time.Second, 2 * time.Second
	// maxTorn is how many bytes more a cut takes at most: it then ends within a transaction.
	maxTorn = 200
	// listed is how many jobs a line of the log names at most.
	listed = 8
)

// TestEverysecLosesASecondAtMost asserts what is said of L4 under appendfsync everysec: a machine that fails takes with
// it what was acknowledged in the last second, and while Redis held writes back from a slow disk before that, no more,
// and what is left is conserved. The failure is made by cutting the journal of a killed Redis back to its length of a
// second before, and on into the transaction there, as a disk does. As docs/OPERATIONS.md says, it is rewritten then: else the next
// start would carry out half of that transaction. Once more than that is cut off, by which the test must see that the bound is broken.
func TestEverysecLosesASecondAtMost(t *testing.T) {
	t.Parallel()
	s := newStorm(t, "everysec")
	config, err := s.client.ConfigGet(t.Context(), "dir").Result()
	s.check(err)
	syncs, err := s.client.ConfigGet(t.Context(), "appendfsync").Result()
	s.check(err)
	if syncs["appendfsync"] != "everysec" {
		t.Fatalf("this Redis syncs %q", syncs["appendfsync"])
	}
	e := &everysec{storm: s, dataDir: config["dir"], acknowledged: map[string]time.Time{}}
	e.services()
	var lastGone map[string]bool
	for n := range everysecKills {
		s.pause(time.Duration(1300+s.dice.IntN(500)) * time.Millisecond)
		last := n == everysecKills-1
		gone, early := e.crash(lastGone, last)
		if lastGone = gone; last && len(early) == 0 {
			t.Error("a journal that lost a second of what it should have kept lost nothing: the test sees nothing")
		} else if !last && len(early) > 0 {
			t.Errorf("%d lost, and acknowledged before the last second: %s", len(early), strings.Join(early[:min(len(early), listed)], ", "))
		}
	}
	e.stopProducing()
	s.calm()
	e.stopAll()
	census, err := s.store.Census(t.Context())
	s.check(err)
	ended, dead, _ := outcomes(t.Context(), t.Fatal, s.client, s.store)
	lost := 0
	for key := range e.acknowledged {
		if !ended[key] && !dead[key] && !lastGone[key] {
			t.Errorf("job %s was acknowledged and kept by every crash, and is gone", key)
		}
		if lastGone[key] {
			lost++
		}
	}
	t.Logf("%d crashes, %d jobs acknowledged, %d of them lost, Redis has %+v", everysecKills, len(e.acknowledged), lost, census)
	if !census.Conserved() || census.Accepted != int64(len(ended)+len(dead)) {
		t.Errorf("law L4: %+v, %d ended, %d dead", census, len(ended), len(dead))
	}
}

// everysec is a storm whose services run in this process.
type everysec struct {
	*storm
	dataDir                string
	producing, serving     sync.WaitGroup
	stopProducers, stopAny context.CancelFunc

	mu           sync.Mutex
	acknowledged map[string]time.Time // when, by the clock of this process
}

// services runs producers, a worker and the scheduler.
func (e *everysec) services() {
	e.Helper()
	sdk, err := producer.New(e.store, producer.Config{Timeout: 500 * time.Millisecond})
	e.check(err)
	var producing, serving context.Context
	producing, e.stopProducers = context.WithCancel(e.Context())
	serving, e.stopAny = context.WithCancel(e.Context())
	for of := range 4 {
		e.producing.Go(func() {
			for n := 0; wait(producing, 5*time.Millisecond) == nil; n++ {
				e.enqueue(producing, sdk, stormJob(of, n))
			}
		})
	}
	w, err := worker.New(e.store, worker.Config{Queues: stormQueues, Concurrency: stormSlots, Lease: stormLease, NoScheduler: true, DrainTimeout: time.Second})
	e.check(err)
	worker.Register(w, "work", func(context.Context, worker.Job[[]byte]) error { return nil })
	timers, err := scheduler.New(e.store, scheduler.Config{})
	e.check(err)
	e.serving.Go(func() { _ = timers.Run(serving) })
	e.serving.Go(func() { _ = w.Run(serving) })
}

// enqueue asks until there is an answer, and notes when that came.
func (e *everysec) enqueue(ctx context.Context, sdk *producer.Producer, j admission.Job) {
	for ctx.Err() == nil {
		verdict, err := sdk.Enqueue(ctx, j)
		if err == nil {
			e.mu.Lock()
			e.acknowledged[j.Tenant+":"+verdict.ID] = time.Now()
			e.mu.Unlock()
		}
		if err == nil || verdict.Decision == admission.Refused && verdict.Reason != "" {
			return
		}
		_ = wait(ctx, 10*time.Millisecond)
	}
}

// sample is the length of the journal at a time.
type sample struct {
	at   time.Time
	size int64
}

// lengthBefore returns the place of the last sample that is as much older than a time as that.
func lengthBefore(samples []sample, moment time.Time, age time.Duration) int {
	last := 0
	for i, s := range samples {
		if moment.Sub(s.at) >= age {
			last = i
		}
	}
	return last
}

// wholeBefore returns the time up to which all that was acknowledged stands in a journal that is cut back to a sample. The
// write that made it that long may have been under way, its end cut off; the one before it was whole, came after a sample
// with a shorter journal still, and took along all that was acknowledged until then.
func wholeBefore(samples []sample, at int) time.Time {
	for range 2 {
		for size := samples[at].size; at > 0 && samples[at].size == size; {
			at--
		}
	}
	return samples[at].at
}

// TestWholeBefore is about the arithmetic of the bound: lengths of journals, one a letter and step, a being the shortest.
func TestWholeBefore(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		lengths string
		// age is how many steps before the end the journal is cut, want how many before it all is whole.
		age, want int
	}{
		{"abcdefgh", 2, 4},
		{"abcdefgh", 3, 5},
		{"abccccgh", 2, 7},
		{"abbbbccccc", 3, 10},
		{"aaaaaaaa", 2, 8},
	} {
		begin := time.Now()
		var samples []sample
		for i, size := range c.lengths {
			samples = append(samples, sample{begin.Add(time.Duration(i) * sampleStep), int64(size)})
		}
		end := begin.Add(time.Duration(len(c.lengths)) * sampleStep)
		at := lengthBefore(samples, end, time.Duration(c.age)*sampleStep)
		if got := int(end.Sub(wholeBefore(samples, at)) / sampleStep); got != c.want {
			t.Errorf("%s, cut %d steps before its end, is whole up to %d steps before it, want %d", c.lengths, c.age, got, c.want)
		}
	}
}

// crash kills Redis, cuts off what its journal has gained in everysecLoss, and starts it again. tooMuch cuts off a second more than what everysec
// may lose, however long Redis held writes back before. It returns the acknowledged jobs that are gone, those of earlier crashes included, and
// says which of the new ones everysec should have kept.
func (e *everysec) crash(before map[string]bool, tooMuch bool) (gone map[string]bool, early []string) {
	e.Helper()
	var samples []sample
	looks := everysecLoss + slowDisk + 4*sampleStep
	if tooMuch {
		looks += slowDisk + everysecLoss
	}
	for begin := time.Now(); time.Since(begin) < looks; e.pause(sampleStep) {
		at := time.Now()
		samples = append(samples, sample{at, e.journalSize()})
	}
	killed := time.Now()
	e.server.Kill(e.TB)
	at := lengthBefore(samples, killed, everysecLoss)
	cut, written := samples[at], wholeBefore(samples, at)
	if tooMuch {
		cut = samples[lengthBefore(samples, written, everysecLoss)]
	}
	full := e.journalSize()
	e.check(os.Truncate(e.journal(), cut.size-int64(1+e.dice.IntN(maxTorn))))
	e.server.Restart(e.TB)
	// After as many failed dials as it has connections go-redis answers with the last one's error, and dials once a second.
	for end := time.Now().Add(time.Minute); e.client.Ping(e.Context()).Err() != nil && time.Now().Before(end); e.pause(sampleStep) {
	}
	e.rewriteJournal()
	e.mu.Lock()
	known := maps.Clone(e.acknowledged)
	e.mu.Unlock()
	gone = map[string]bool{}
	lost := 0
	ended, live := e.kept()
	for key, at := range known {
		if ended[key] || live[key] {
			continue
		}
		gone[key] = true
		if before[key] {
			continue
		}
		lost++
		if at.Before(written) {
			early = append(early, fmt.Sprintf("%s %s before the crash", key, killed.Sub(at)))
		}
	}
	e.Logf("crash: the journal lost %d bytes of its last %s; all acknowledged up to %s before it should be kept; %d jobs lost: %s",
		full-cut.size, killed.Sub(cut.at), killed.Sub(written), lost, list(gone, before))
	return gone, early
}

// list names the first few of those that are gone since before.
func list(gone, before map[string]bool) string {
	var fresh []string
	for key := range gone {
		if !before[key] {
			fresh = append(fresh, key)
		}
	}
	slices.Sort(fresh)
	return strings.Join(fresh[:min(len(fresh), listed)], " ")
}

// kept returns the ids that Redis knows. Jobs go on from living to ended meanwhile, so those that live are read first.
func (e *everysec) kept() (ended, live map[string]bool) {
	e.Helper()
	keys, err := e.client.HKeys(e.Context(), redisstore.Keys(e.store).Jobs()).Result()
	e.check(err)
	live = map[string]bool{}
	for _, key := range keys {
		live[key] = true
	}
	ended, _, _ = outcomes(e.Context(), e.Fatal, e.client, e.store)
	return ended, live
}

// rewriteJournal returns once Redis has.
func (e *everysec) rewriteJournal() {
	e.Helper()
	e.check(e.client.BgRewriteAOF(e.Context()).Err())
	for end := time.Now().Add(time.Minute); ; e.pause(sampleStep) {
		info, err := e.client.InfoMap(e.Context(), "persistence").Result()
		e.check(err)
		if of := info["Persistence"]; of["aof_rewrites"] != "0" && of["aof_rewrite_in_progress"] == "0" {
			return
		}
		if time.Now().After(end) {
			e.Fatalf("the journal is not rewritten: %v", info)
		}
	}
}

// journal names the last file of the append-only journal.
func (e *everysec) journal() string {
	e.Helper()
	files, err := filepath.Glob(filepath.Join(e.dataDir, "appendonlydir", "*.incr.aof"))
	if err == nil && len(files) != 1 {
		err = fmt.Errorf("%d journals in %s", len(files), e.dataDir)
	}
	e.check(err)
	return files[0]
}

func (e *everysec) journalSize() int64 {
	e.Helper()
	info, err := os.Stat(e.journal())
	e.check(err)
	return info.Size()
}

func (e *everysec) stopProducing() { e.stopProducers(); e.producing.Wait() }

func (e *everysec) stopAll() { e.stopAny(); e.serving.Wait() }
