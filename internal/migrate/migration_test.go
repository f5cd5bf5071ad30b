package migrate

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/internal/redisconn"
	"github.com/headgate/headgate/internal/redistest"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/redisstore"
)

// migration opens one, from and to being clients of the same Redis or of two.
func migration(ctx context.Context, from, to redis.UniversalClient, prefix string, partitions int) (*Migration, error) {
	return Open(ctx, from, to, Config{Prefix: prefix, Partitions: partitions, Target: "redis://elsewhere:6379", Update: renewed})
}

// compareKept reports what a migration has changed, but for the version of the policy that it stores.
func compareKept(t *testing.T, before, after []string) {
	t.Helper()
	counts := map[string]int{}
	for _, line := range before {
		counts[line]--
	}
	for _, line := range after {
		counts[line]++
	}
	told := 0
	for line, n := range counts {
		if n != 0 && !strings.HasPrefix(line, "policies 2 ") && told < 10 {
			t.Errorf("%+d: %.150q", n, line)
			told++
		}
	}
}

// route is one way of migrating.
type route struct {
	name     string
	from, to int
	// elsewhere has another Redis, nil for the same.
	elsewhere func(*testing.T) redis.UniversalClient
}

func anotherRedis(t *testing.T) redis.UniversalClient {
	t.Helper()
	return redistest.Start(t, redistest.Options{}).Client(t)
}

func aCluster(t *testing.T) redis.UniversalClient {
	t.Helper()
	return redistest.StartNodes(t, 2, false).Client(t)
}

var routes = []route{
	{"from one to four", 1, 4, nil},
	{"from three to eight", 3, 8, nil},
	{"back from four to one", 4, 1, nil},
	{"from five to two", 5, 2, nil},
	{"from one to four on another Redis", 1, 4, anotherRedis},
	{"from four to three on another Redis", 4, 3, anotherRedis},
	{"from one to four on a cluster", 1, 4, aCluster},
}

func (r route) open(t *testing.T) (c *crowd, from, to redis.UniversalClient) {
	t.Helper()
	from = redistest.Shared(t).Client(t)
	if to = from; r.elsewhere != nil {
		to = r.elsewhere(t)
	}
	prefix := redistest.Prefix(t)
	s, err := redisstore.Open(t.Context(), from, redisstore.Config{Prefix: prefix, Partitions: r.from})
	check(t, err)
	seed := *crowdSeed
	if seed == 0 {
		seed = rand.Uint64() //nolint:gosec // a test
	}
	t.Logf("-crowd-seed %d", seed)
	return newCrowd(t, s, prefix, seed), from, to
}

var crowdSeed = flag.Uint64("crowd-seed", 0, "what the jobs that are migrated are drawn from; 0 draws that")

// check compares a migrated deployment with what it was, and lets every job run.
func (r route) check(t *testing.T, c *crowd, to redis.UniversalClient, before []string, census store.Census, tokens float64) {
	t.Helper()
	ctx := t.Context()
	s, err := redisstore.Open(ctx, to, redisstore.Config{Prefix: c.prefix, Partitions: r.to})
	check(t, err)
	after, now := keptOf(ctx, t, s)
	compareKept(t, before, after)
	const minute = 60 // A micro-token comes in 3.6 s; what cannot be divided by the number of partitions is lost, each time it is tried.
	if left := tokensLeft(ctx, t, s); left > tokens+minute || left < tokens-minute {
		t.Errorf("%.0f micro-tokens of the global limit became %.0f", tokens, left)
	}
	if fmt.Sprint(now) != fmt.Sprint(census) {
		t.Errorf("counted before %+v, after %+v", census, now)
	}
	for _, key := range c.ended {
		job := admission.NewJob(key.Tenant, "mail", "kind", nil)
		job.ID, job.Priority = key.ID, admission.Low
		verdicts, err := homeOf(s, key.Tenant).Admit(ctx, 2, []store.Candidate{{Job: &job, Class: 2, Limits: &[admission.Levels]admission.Limit{}}})
		check(t, err)
		if verdicts[0].Decision != admission.Duplicate {
			t.Errorf("%s, which has ended, is %+v", key, verdicts[0])
		}
		if result, err := s.Result(ctx, key); err != nil || string(result) != "result" {
			t.Errorf("result of %s is %q: %v", key, result, err)
		}
	}
	for i, part := range partsOf(inRedis(s)) {
		want := int64(1000 - r.from + 1)
		if r.elsewhere == nil && i < r.from && r.from < r.to {
			want = int64(1000 - i)
		}
		if place, err := part.Followed(ctx, store.DeathFollower); err != nil || place.At.UnixMicro() != want {
			t.Errorf("dead letters of partition %d are followed from %d, want %d: %v", i, place.At.UnixMicro(), want, err)
		}
		until, err := redisconn.Client(part.conn).HGet(ctx, part.conn.Partition.State(), "ru").Int64()
		if len(c.ended) > 0 && (err != nil || until < time.Now().UnixMicro()) {
			t.Errorf("partition %d knows of results until %d: %v", i, until, err)
		}
		if version, _, err := part.policyVersion(ctx); err != nil || version != 2 {
			t.Errorf("partition %d is at version %d: %v", i, version, err)
		}
	}
	audit, err := s.Audit(ctx, store.AuditQuery{Limit: 10})
	check(t, err)
	if len(audit.Entries) < 2 || !slices.ContainsFunc(audit.Entries, func(e store.AuditEntry) bool { return e.Author == "headgate migrate" }) {
		t.Errorf("the audit has %+v", audit.Entries)
	}
	// The process that was there before the migration is refused, whatever it does.
	job, class := c.job()
	_, err = homeOf(c.s, job.Tenant).Admit(ctx, 1, []store.Candidate{{Job: &job, Class: class, Limits: &[admission.Levels]admission.Limit{}}})
	want := admission.ErrPartitions
	if r.elsewhere != nil {
		want = admission.ErrMoved
	}
	if !errors.Is(err, want) || store.InDoubt(err) {
		t.Errorf("an old process: %v", err)
	}
	if _, err := c.s.Partitions()[0].Register(ctx, "old", crowdQueues, 1, time.Minute); !errors.Is(err, want) {
		t.Errorf("an old worker: %v", err)
	}
	if _, err := redisstore.Open(ctx, redisconn.Client(inRedis(c.s)[0].Conn()), redisstore.Config{Prefix: c.prefix, Partitions: r.from}); !errors.Is(err, want) {
		t.Errorf("an old process that starts: %v", err)
	}
	c.s, c.t = s, t
	c.drain()
}

// drain lets all jobs run that may, and asks that each runs once.
func (c *crowd) drain() {
	c.t.Helper()
	ctx := c.t.Context()
	for _, name := range []store.GateName{store.QueueGate("hook"), store.TenantGate("t4"), store.TenantGate("t5"), store.DownstreamGate("api")} {
		_, err := c.s.Unpause(ctx, name, store.Intervention{})
		check(c.t, err)
	}
	_, err := c.s.ResetBreaker(ctx, "smtp", store.Intervention{})
	check(c.t, err)
	census, err := c.s.Census(ctx)
	check(c.t, err)
	before, ran := census, map[string]bool{}
	for _, part := range c.s.Partitions() {
		_, err := part.Register(ctx, "w", crowdQueues, 64, time.Minute)
		check(c.t, err)
		for idle := 0; idle < 20; idle++ {
			leases, err := part.Read(ctx, "w", crowdQueues.ID(), 64, -1, false)
			check(c.t, err)
			for _, l := range leases {
				key := admission.Key{Tenant: l.Job.Tenant, ID: l.Job.ID}
				if check(c.t, l.Err); ran[key.String()] {
					c.t.Errorf("%s runs twice", key)
				}
				ran[key.String()], idle = true, 0
				_, _, err := part.Finish(ctx, crowdQueues.ID(), "w", []store.Finish{{Token: l.Token, Key: key, Outcome: store.Complete}})
				check(c.t, err)
			}
			_, err = part.Promote(ctx, "s", time.Second)
			check(c.t, err)
		}
	}
	// Spilled jobs of a tenant whose delayed ones take its room stay.
	if census, err = c.s.Census(ctx); err != nil || !census.Conserved() || census.Waiting+census.Ready != 0 || census.Accepted != before.Accepted {
		c.t.Errorf("what is left %+v: %v", census, err)
	}
	if n := census.Left["completed"] - before.Left["completed"]; n != int64(len(ran)) || n < before.Waiting {
		c.t.Errorf("%d jobs ran, %d completed, %d had waited", len(ran), n, before.Waiting)
	}
}

func TestAMigrationKeepsEverything(t *testing.T) {
	t.Parallel()
	for _, r := range routes {
		t.Run(r.name, func(t *testing.T) {
			t.Parallel()
			c, from, to := r.open(t)
			ctx := t.Context()
			before, census := keptOf(ctx, t, c.s)
			tokens := tokensLeft(ctx, t, c.s)
			m, err := migration(ctx, from, to, c.prefix, r.to)
			check(t, err)
			plan, err := m.Run(ctx)
			check(t, err)
			if plan.From != r.from || plan.To != r.to || plan.InPlace != (r.elsewhere == nil) || plan.Jobs != census.Live || plan.Resumed {
				t.Errorf("plan %+v of %+v", plan, census)
			}
			r.check(t, c, to, before, census, tokens)
		})
	}
}
