package crash_test

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/internal/keyspace"
	"github.com/headgate/headgate/internal/redistest"
	"github.com/headgate/headgate/policy"
	"github.com/headgate/headgate/producer"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/redisstore"
)

// longVariable asks for the long form of these tests, which `make outage-return` runs.
const longVariable = "HEADGATE_RETURN"

// TestNobodyIsToldThatNothingWasSentWhoIsIn kills Redis again and again under an open load of 500 jobs a second, and enqueues in
// the end whatever was said not to have been sent: none of it may be a duplicate.
func TestNobodyIsToldThatNothingWasSentWhoIsIn(t *testing.T) {
	if testing.Short() {
		t.Skip("lasts some seconds")
	}
	t.Parallel()
	// Some callers give up while others of their call wait on, so calls go out that somebody has left.
	timeout, kills, away, runs := 400*time.Millisecond, 3, 300, 1
	if os.Getenv(longVariable) != "" {
		timeout, kills, away, runs = 2*time.Second, 4, 1000, 5
	}
	for name, way := range map[string]func(testing.TB, store.Deployment, time.Duration) func(context.Context, string) (told, string){
		"in process": inProcess, "over HTTP": overHTTP,
	} {
		for run := range runs {
			t.Run(fmt.Sprint(name, " ", run), func(t *testing.T) {
				if runs == 1 {
					t.Parallel()
				}
				server := redistest.Start(t, redistest.Options{AppendFsync: "always"})
				s := storeAt(t, server, redisstore.Config{})
				load := beginLoad(t, 500, way(t, s, timeout))
				load.await(200, toldIn)
				for range kills {
					server.Kill(t)
					load.await(away, toldNotSent, toldUnknown)
					server.Restart(t)
					load.await(200, toldIn)
				}
				all := load.end()
				counts := load.counts()
				t.Logf("told in %d, not sent %d, unknown %d", counts[toldIn], counts[toldNotSent], counts[toldUnknown])
				if counts[toldNotSent] < away*kills/2 || counts[toldElse] > 0 {
					t.Errorf("%v is no outage, or something else: %s", counts, load.mu.last)
				}
				if told, in := assertNotIn(t, patient(t, server), all); in != told {
					t.Errorf("%d of %d jobs are in that are said to be", in, told)
				}
			})
		}
	}
}

// patient opens the store of a server for whoever asks it once, and must hear the answer however long a busy machine takes for it: what is
// sent again is a duplicate of itself.
func patient(t *testing.T, server *redistest.Server) store.Deployment {
	t.Helper()
	client := redis.NewClient(&redis.Options{Addr: server.Addr(), ReadTimeout: time.Minute, MaxRetries: -1})
	t.Cleanup(func() { _ = client.Close() })
	s, err := redisstore.Open(t.Context(), client, redisstore.Config{Prefix: "return"})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// storeAt opens the store of a server, with the settings of a production client.
func storeAt(t *testing.T, server *redistest.Server, config redisstore.Config) store.Deployment {
	t.Helper()
	return storeBy(t, "redis://"+server.Addr(), config)
}

func storeBy(t *testing.T, url string, config redisstore.Config) store.Deployment {
	t.Helper()
	config.Prefix = "return"
	s, err := redisstore.Connect(t.Context(), url, config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

// assertNotIn enqueues what was said not to have been sent, which must be new. It returns how many were told that they are in, and how
// many of them are.
func assertNotIn(t *testing.T, store store.Deployment, all []asked) (said, are int) {
	t.Helper()
	unlimited := policy.Unlimited()
	p, err := producer.New(store, producer.Config{Timeout: time.Minute, Policy: &unlimited})
	if err != nil {
		t.Fatal(err)
	}
	in := map[told]int{}
	for kind := range kindsOfTold {
		var jobs []admission.Job
		for _, a := range all {
			if a.told == kind {
				jobs = append(jobs, loadJob(a.id))
			}
		}
		results, err := p.EnqueueBatch(t.Context(), jobs)
		if err != nil {
			t.Fatal(err)
		}
		for i, r := range results {
			if r.Verdict.Decision != admission.Duplicate {
				continue
			}
			if in[kind]++; kind == toldNotSent && in[kind] <= 3 {
				t.Errorf("job %s is in, and its caller was told that nothing was sent", jobs[i].ID)
			}
		}
		if kind == toldIn {
			said = len(jobs)
		}
	}
	t.Logf("in are %d of those told so, %d of those told that nothing was sent, %d of those told that it is not known",
		in[toldIn], in[toldNotSent], in[toldUnknown])
	return said, in[toldIn]
}

// TestLoadReturnsWithRedis leaves an open load without Redis for longer than a call may take, so that callers wait whose time is
// almost over, and brings Redis back: goodput is what it was. In the long form, which measures it, within a second of the return, at
// distances of up to 30 ms each way, and with a replica asked for in vain.
func TestLoadReturnsWithRedis(t *testing.T) {
	if testing.Short() {
		t.Skip("lasts some seconds")
	}
	t.Parallel()
	if os.Getenv(longVariable) == "" {
		for name, c := range map[string]returnCase{
			"10 ms away":             {rate: 500, distance: 10 * time.Millisecond},
			"with a replica in vain": {rate: 60, replicas: 1},
		} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				c.timeout = 400 * time.Millisecond
				load, _, restart := c.begin(t)
				load.await(2*c.rate, toldNotSent, toldUnknown)
				restart()
				// As many as before: of those that begin from some time on nearly all are let in.
				c.awaitGoodput(t, load)
			})
		}
		return
	}
	for _, replicas := range []int{0, 1} {
		for _, distance := range []time.Duration{0, 4 * time.Millisecond, 10 * time.Millisecond, 30 * time.Millisecond} {
			for _, rate := range []int{20, 200, 1000} {
				t.Run(fmt.Sprintf("replicas %d, %s away, %d jobs/s", replicas, distance, rate), func(t *testing.T) {
					c := returnCase{rate: rate, distance: distance, replicas: replicas, timeout: 2 * time.Second}
					load, before, restart := c.begin(t)
					c.rest(t, 4*time.Second)
					back := restart()
					c.rest(t, 5*time.Second)
					c.assertReturned(t, load.end(), before, back)
				})
			}
		}
	}
}

// TestLoadReturnsWithAFailover is the same on a cluster of three masters, one of which is killed: within a second of its replica's
// promotion goodput is what it was, in every partition. Only the long form, as it is measured by the clock.
func TestLoadReturnsWithAFailover(t *testing.T) {
	if os.Getenv(longVariable) == "" {
		t.Skip("make outage-return measures it")
	}
	for _, replicas := range []int{0, 1} {
		for _, rate := range []int{200, 1000} {
			t.Run(fmt.Sprintf("replicas %d, %d jobs/s", replicas, rate), func(t *testing.T) {
				cluster := redistest.StartNodes(t, 3, true)
				c := returnCase{rate: rate, replicas: replicas, timeout: 2 * time.Second}
				s := storeBy(t, cluster.URL(), redisstore.Config{Partitions: 4, Replicas: replicas})
				load := beginLoad(t, rate, inProcess(t, s, c.timeout))
				load.await(rate, toldIn)
				counts := load.counts()
				base := redisstore.KeysOf(s.Partitions()[0]).Base()
				slot := keyspace.SlotOf(base[strings.Index(base, "{")+1 : strings.Index(base, "}")])
				cluster.GoneAfter(t, redistest.NodeTimeout)
				killed := cluster.MasterOf(t, slot)
				replica := cluster.Replicas[slices.Index(cluster.Masters, killed)].Client(t)
				killed.Kill(t)
				awaitPromotion(t, replica)
				back := time.Now()
				c.rest(t, 5*time.Second)
				all := load.end()
				c.assertReturned(t, all, float64(counts[toldIn])/float64(counts[toldIn]+counts[toldNotSent]+counts[toldUnknown]), back)
				assertNotIn(t, s, all) // A failover may lose what is in: TestCluster says which.
			})
		}
	}
}

// awaitPromotion waits until a replica is a master.
func awaitPromotion(t *testing.T, replica *redis.Client) {
	t.Helper()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		info, err := replica.Info(t.Context(), "replication").Result()
		if err == nil && strings.Contains(info, "role:master") {
			return
		}
		select {
		case <-t.Context().Done():
			t.Fatal("the replica is no master")
		case <-tick.C:
		}
	}
}

// returnCase is one outage.
type returnCase struct {
	rate     int
	distance time.Duration // each way
	replicas int
	timeout  time.Duration
}

// begin begins a load that is let in, and takes Redis away. It returns the share that was let in before; restart
// brings Redis back and returns when that was.
func (c *returnCase) begin(t *testing.T) (load *openLoad, before float64, restart func() time.Time) {
	t.Helper()
	server := redistest.Start(t, redistest.Options{AppendFsync: "everysec"})
	addr := server.Addr()
	if c.distance > 0 {
		proxy := redistest.NewProxy(t, addr)
		proxy.Decide(func(redistest.Command) redistest.Action { return redistest.Action{Delay: 2 * c.distance} })
		addr = proxy.Addr()
	}
	s := storeBy(t, "redis://"+addr, redisstore.Config{Replicas: c.replicas})
	load = beginLoad(t, c.rate, inProcess(t, s, c.timeout))
	load.await(max(20, c.rate), toldIn)
	counts := load.counts()
	server.Kill(t)
	return load, float64(counts[toldIn]) / float64(counts[toldIn]+counts[toldNotSent]+counts[toldUnknown]), func() time.Time {
		server.Restart(t)
		return time.Now()
	}
}

// rest lets the load go on for a time: what is measured is by the clock.
func (*returnCase) rest(t *testing.T, d time.Duration) {
	t.Helper()
	select {
	case <-time.After(d):
	case <-t.Context().Done():
	}
}

// awaitGoodput waits until 95 of the last 100 answers let a job in.
func (c *returnCase) awaitGoodput(t *testing.T, load *openLoad) {
	t.Helper()
	const last, good = 100, 95
	share := func() int {
		load.mu.Lock()
		defer load.mu.Unlock()
		in := 0
		for _, a := range load.mu.asked[max(0, len(load.mu.asked)-last):] {
			if a.told == toldIn {
				in++
			}
		}
		return in
	}
	back := time.Now()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for share() < good {
		select {
		case <-ctx.Done():
			t.Fatalf("a minute after the return %d of the last %d were let in", share(), last)
		case <-tick.C:
		}
	}
	t.Logf("%d of the last %d were let in %s after the return", good, last, time.Since(back).Round(time.Millisecond))
}

// assertReturned asserts the goodput of the calls that began a second or more after the return, and tells how long it took.
func (c *returnCase) assertReturned(t *testing.T, all []asked, before float64, back time.Time) {
	t.Helper()
	const second = time.Second
	var of, in, slow int
	first := time.Duration(-1)
	for _, a := range all {
		since := a.began.Sub(back)
		if a.told == toldIn && a.ended.After(back) && (first < 0 || a.ended.Sub(back) < first) {
			first = a.ended.Sub(back)
		}
		if since > second && since < 4*second {
			of++
			if a.told == toldIn {
				in++
			}
		}
		if a.ended.Sub(a.began) > c.timeout+50*time.Millisecond {
			slow++
		}
	}
	share := float64(in) / float64(max(1, of))
	t.Logf("first let in %s after the return; of the calls begun 1 to 4 s after it %.3f were, before %.3f; %d answers came later than the time-out + 50 ms",
		first.Round(time.Millisecond), share, before, slow)
	if share < 0.95*before {
		t.Errorf("goodput is %.3f, before it was %.3f", share, before)
	}
}
