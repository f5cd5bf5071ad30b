package crash_test

import (
	"context"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/redisclient"
	"github.com/headgate/headgate/internal/redistest"
	"github.com/headgate/headgate/producer"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/redisstore"
)

// failoverPatience bounds each wait of TestFailover. A Sentinel that halted for two seconds does nothing for thirty.
const failoverPatience = 2 * time.Minute

// TestFailover asserts what is said of a failover by Sentinels: with a producer, a scheduler and a worker at work the master
// is killed, and later another failover is asked for. All of them recover by themselves. No job is lost of which the
// verdict says that the replica has it. Others that are lost were acknowledged while the replica was behind: it is kept from
// following a moment before the kill, by which the test must see that there was something to lose.
func TestFailover(t *testing.T) {
	if testing.Short() {
		t.Skip("lasts half a minute")
	}
	t.Parallel()
	f := newFailover(t)
	f.enter(replicatedRole, 0)
	f.enter(schedulerRole, 0)
	f.enter(workerRole, 0)
	f.await("jobs are confirmed and run", func() bool { return f.confirmed(0) >= 100 && f.completed(0) >= 50 })

	severed := f.sever()
	f.await("jobs are acknowledged by the master alone", func() bool { return f.acknowledged(severed) >= f.confirmed(severed)+20 })
	killed := nanos()
	f.pair.KillMaster(t, f.pair.Master)
	replica := f.pair.Replica.Client(t)
	f.await("the replica is the master", func() bool {
		info, err := replica.Info(t.Context(), "replication").Result()
		return err == nil && strings.Contains(info, "role:master")
	})
	promoted := nanos()
	f.await("jobs are let in and run again", func() bool { return f.acknowledged(killed) >= 20 && f.completed(killed) >= 20 })
	t.Logf("a job was let in %s and one had run %s after the kill", f.after(killed, f.firstAcknowledged), f.after(killed, f.firstCompleted))
	f.pair.AwaitPromotion(t, f.pair.Replica)

	f.pair.Master.Restart(t)
	f.pair.AwaitReplica(t, f.pair.Master)
	follows := nanos()
	f.await("jobs are confirmed by the old master", func() bool { return f.confirmed(follows) >= 20 })
	f.pair.Switch(t)
	asked := nanos()
	f.pair.AwaitPromotion(t, f.pair.Master)
	f.await("jobs run again", func() bool { return f.acknowledged(asked) >= 100 && f.completed(asked) >= 100 })

	f.leaveAll(replicatedRole)
	f.await("what is left has run", func() bool {
		c, err := f.store.Census(t.Context())
		return err == nil && c.Live == c.Dead
	})
	f.leaveAll(workerRole)
	f.leaveAll(schedulerRole)
	f.audit(severed, promoted, follows)
}

// failover is a cast at a master that Sentinels know.
type failover struct {
	*cast
	pair   *redistest.Failover
	client *redis.Client // of the present master
	store  store.Deployment
}

func newFailover(t *testing.T) *failover {
	t.Helper()
	f := &failover{pair: redistest.StartFailover(t, redistest.Options{})}
	f.cast = newCast(t, f.pair.Master)
	for _, role := range []string{replicatedRole, schedulerRole, workerRole} {
		f.ways[role] = f.pair.URL()
	}
	options, sentinel, err := redisclient.Parse(f.pair.URL())
	f.check(err)
	f.client = redisclient.New(options, sentinel)
	t.Cleanup(func() { _ = f.client.Close() })
	f.store, err = redisstore.Open(t.Context(), f.client, redisstore.Config{})
	f.check(err)
	putPolicy(t, f.store, stormPolicy())
	return f
}

// sever keeps the replica from following for good, and returns a time before which it has got everything.
func (f *failover) sever() int64 {
	f.Helper()
	client := f.pair.Master.Client(f)
	severed := nanos()
	if n, err := client.Wait(f.Context(), 1, 0).Result(); n != 1 || err != nil {
		f.Fatalf("%d replicas follow: %v", n, err)
	}
	f.check(client.Do(f.Context(), "ACL", "SETUSER", "default", "-psync", "-sync", "-replconf").Err())
	f.check(client.Do(f.Context(), "CLIENT", "KILL", "TYPE", "replica").Err())
	return severed
}

func (f *failover) await(what string, done func() bool) {
	f.Helper()
	for deadline := time.Now().Add(failoverPatience); !done(); f.pause(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			f.Fatalf("waited in vain: %s", what)
		}
	}
}

// acknowledgement is a job that was let in.
type acknowledgement struct {
	at           int64
	key          string
	unreplicated bool
}

func (f *failover) acknowledgements() (all []acknowledgement) {
	f.Helper()
	f.read(replicatedRole, func(of int, words []string) {
		if words[0] != "A" {
			return
		}
		at, err := strconv.ParseInt(words[1], 10, 64)
		f.check(err)
		n, err := strconv.Atoi(words[2])
		f.check(err)
		j := stormJob(of, n)
		all = append(all, acknowledgement{at: at, key: j.Tenant + ":" + j.ID, unreplicated: words[3] == "true"})
	})
	return all
}

// acknowledged counts the jobs that were let in since a time, confirmed those of them that the replica has.
func (f *failover) acknowledged(since int64) (n int) {
	f.Helper()
	for _, a := range f.acknowledgements() {
		if a.at > since {
			n++
		}
	}
	return n
}

func (f *failover) confirmed(since int64) (n int) {
	f.Helper()
	for _, a := range f.acknowledgements() {
		if a.at > since && !a.unreplicated {
			n++
		}
	}
	return n
}

// runs calls each for the deliveries that ended well, with the time.
func (f *failover) runs(each func(at int64, key string)) {
	f.Helper()
	f.read(workerRole, func(_ int, words []string) {
		if words[0] == "F" && words[3] == "completed" {
			at, err := strconv.ParseInt(words[1], 10, 64)
			f.check(err)
			each(at, words[2])
		}
	})
}

func (f *failover) completed(since int64) (n int) {
	f.Helper()
	f.runs(func(at int64, _ string) {
		if at > since {
			n++
		}
	})
	return n
}

func (f *failover) firstAcknowledged(since int64) (first int64) {
	for _, a := range f.acknowledgements() {
		if a.at > since && (first == 0 || a.at < first) {
			first = a.at
		}
	}
	return first
}

func (f *failover) firstCompleted(since int64) (first int64) {
	f.runs(func(at int64, _ string) {
		if at > since && (first == 0 || at < first) {
			first = at
		}
	})
	return first
}

func (f *failover) after(since int64, first func(int64) int64) time.Duration {
	return time.Duration(first(since) - since).Round(time.Millisecond)
}

// audit holds what is left against what was promised. A process may write down what the old master answered when that is gone
// already; the new one lets nothing in before it is the master.
func (f *failover) audit(severed, promoted, follows int64) {
	f.Helper()
	ended, dead, _ := outcomes(f.Context(), f.Fatal, f.client, f.store)
	ran := map[string]bool{}
	f.runs(func(_ int64, key string) { ran[key] = true })
	all := f.acknowledgements()
	var confirmed, lost int
	var broken []string
	for _, a := range all {
		if !a.unreplicated {
			confirmed++
		}
		if ended[a.key] || dead[a.key] || ran[a.key] {
			continue
		}
		lost++
		behind := a.at > severed && a.at < promoted || a.at > follows
		if !a.unreplicated || !behind {
			broken = append(broken, a.key)
		}
	}
	f.Logf("%d jobs were acknowledged, %d of them confirmed by the replica; %d were lost, %d against what was promised", len(all), confirmed, lost, len(broken))
	if len(broken) > 0 {
		f.Errorf("lost against what was promised: %s", strings.Join(broken, ", "))
	}
	if lost == 0 {
		f.Errorf("nothing was lost of what the replica never got: the test sees nothing")
	}
	census, err := f.store.Census(f.Context())
	f.check(err)
	if !census.Conserved() {
		f.Errorf("law L4: %+v", census)
	}
}

// produceReplicated asks for jobs until ctx ends, each until it is decided.
func (p *player) produceReplicated(ctx context.Context) error {
	sdk, err := producer.New(p.store, producer.Config{})
	if err != nil {
		return err
	}
	var next atomic.Int64
	var running sync.WaitGroup
	for range stormCallers {
		running.Go(func() {
			for wait(ctx, 10*time.Millisecond) == nil {
				n := int(next.Add(1) - 1)
				p.decideReplicated(ctx, sdk, n)
			}
		})
	}
	running.Wait()
	return nil
}

func (p *player) decideReplicated(ctx context.Context, sdk *producer.Producer, n int) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), resendFor) // A job that was sent is decided.
	defer cancel()
	for ctx.Err() == nil {
		verdict, err := sdk.Enqueue(ctx, stormJob(p.number, n))
		if err == nil {
			p.book.note("A", nanos(), n, verdict.Unreplicated)
			return
		}
		if verdict.Reason != "" {
			return // A refusal.
		}
		_ = wait(ctx, 20*time.Millisecond)
	}
}
