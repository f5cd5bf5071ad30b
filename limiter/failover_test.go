package limiter

import (
	"net"
	"slices"
	"testing"
	"time"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/internal/redisclient"
	"github.com/headgate/headgate/internal/redistest"
)

// TestAFailoverCostsWhatWasNotReplicated: law L1 for leases at a master that Sentinels replace: first at request, when its
// replica has everything; then because it was killed, when the replica lacks what was debited of late. The bound holds, but
// for the tokens that the replica gives back.
func TestAFailoverCostsWhatWasNotReplicated(t *testing.T) {
	t.Parallel()
	pair := redistest.StartFailover(t, redistest.Options{})
	options, sentinel, err := redisclient.Parse(pair.URL())
	check(t, err)
	client := redisclient.New(options, sentinel)
	t.Cleanup(func() { _ = client.Close() })
	v := newVirtual()
	client.AddHook(hook{v, client})
	f := newFleet(v, open(t, client), Config{Timeout: patient, Outage: OutageClosed})
	f.put(t, admission.PerSecond(100).WithBurst(2000))
	for range 16 {
		f.join(t)
	}

	f.rush(t)
	replicated(t, pair.Master)
	pair.Switch(t)
	pair.AwaitPromotion(t, pair.Replica)
	f.awaitMaster(t)
	f.rush(t)
	if over := f.broken(); over != "" {
		t.Fatal(over)
	}

	v.pass(time.Minute) // The bucket is full, and nothing is on lease.
	follow(t, pair.Master, pair.Replica)
	pair.AwaitReplica(t, pair.Master)
	sever(t, pair.Replica)
	before := f.debited()
	f.rush(t)
	lost := f.debited() - before
	pair.KillMaster(t, pair.Replica)
	pair.AwaitPromotion(t, pair.Master)
	f.note(moment{lost: lost})
	at := len(f.moments) - 1
	f.awaitMaster(t)
	f.rush(t)
	if over := f.broken(); over != "" {
		t.Error(over)
	}
	if f.moments[at].lost = 0; f.broken() == "" {
		t.Errorf("of %d tokens that the replica gave back none was spent: the test sees nothing", lost)
	}
}

// replicated waits until the replica has everything.
func replicated(t *testing.T, master *redistest.Server) {
	t.Helper()
	if n, err := master.Client(t).Wait(t.Context(), 1, 0).Result(); n != 1 || err != nil {
		t.Fatalf("%d replicas follow: %v", n, err)
	}
}

// follow lets a server follow another one, as Sentinels would after ten seconds.
func follow(t *testing.T, server, master *redistest.Server) {
	t.Helper()
	host, port, err := net.SplitHostPort(master.Addr())
	check(t, err)
	check(t, server.Client(t).ReplicaOf(t.Context(), host, port).Err())
}

// sever keeps the replica, which has everything until then, from following for good.
func sever(t *testing.T, master *redistest.Server) {
	t.Helper()
	replicated(t, master)
	client := master.Client(t)
	check(t, client.Do(t.Context(), "ACL", "SETUSER", "default", "-psync", "-sync", "-replconf").Err())
	check(t, client.Do(t.Context(), "CLIENT", "KILL", "TYPE", "replica").Err())
}

// debited is what was taken out of the bucket since the beginning.
func (f *fleet) debited() admission.Tokens {
	sum := f.exact
	for _, l := range slices.Concat(f.killed, f.limiters) {
		sum += l.Stats().Leased
	}
	return sum
}

// awaitMaster lets leases end, and asks until each limiter hears from Redis again.
func (f *fleet) awaitMaster(t *testing.T) {
	t.Helper()
	f.time.pass(leaseLife)
	deadline := time.Now().Add(time.Minute)
	for i := range f.limiters {
		for exact := f.exact; f.exact == exact; f.time.pass(10 * time.Millisecond) {
			if f.ask(t, i, 1, 1); time.Now().After(deadline) {
				t.Fatalf("limiter %d has not heard from redis for a minute", i)
			}
		}
	}
}
