package lua

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/breaker"
	"github.com/headgate/headgate/internal/redistest"
)

// movingPolicy has something of each kind that partitions divide or keep.
func movingPolicy(version int64) PolicyUpdate {
	return PolicyUpdate{
		Expected: version - 1, Version: version, Text: fmt.Appendf(nil, `{"version":%d}`, version), Window: time.Hour, Edit: strconv.FormatInt(version, 10),
		Queues: []QueueSettings{
			{Queue: "mail", Classes: headgate.DefaultClasses(), Horizon: time.Hour},
			{Queue: "hook", Classes: headgate.DefaultClasses(), Horizon: time.Hour, KeepDead: time.Hour, Overflow: Overflow{Policy: Spillover, MaxJobs: 3, MaxSpilled: 100, LowWater: 50}},
		},
		Weights: []TenantWeight{{Class: headgate.Medium, Weight: 2}, {Class: headgate.High, Tenant: "t1", Weight: 7}},
		Caps: []Cap{
			{Gate: QueueGate("mail"), Limit: 1000},
			{Gate: DownstreamGate("api"), Limit: 999},
			{Gate: TenantGate("t2"), Limit: 50},
			{Gate: TenantRateGate("t3"), Rate: headgate.PerSecond(100, 1000)},
			{Gate: DownstreamRateGate("api"), Rate: headgate.PerSecond(1000, 1000)},
		},
		MaxParked: map[string]int{"": 1000},
	}
}

func renewed(_ []byte, version int64) (PolicyUpdate, error) { return movingPolicy(version), nil }

// crowd fills a deployment with tenants, and jobs in every place and with everything that a job may own.
type crowd struct {
	t      *testing.T
	s      *Store
	random *rand.Rand
	n      int
	// ended are ids that have ended, which stay refused.
	ended []headgate.Key
}

const crowdTenants = 12

var crowdQueues = Pool{Queues: []QueueWeight{{"mail", 1}, {"hook", 1}}}

// crowdLimits hardly refill, so that their tokens can be counted.
var crowdLimits = [headgate.Levels]headgate.Limit{
	{Tokens: 1, Per: 1000 * time.Hour, Burst: 1e6}, {Tokens: 1, Per: 1000 * time.Hour, Burst: 1e6}, {Disabled: true}, {Disabled: true},
}

// tokensLeft returns the micro-tokens of the global limit in all partitions.
func tokensLeft(ctx context.Context, t *testing.T, s *Store) (sum float64) {
	t.Helper()
	for _, part := range s.Partitions() {
		b, found, err := part.globalBucket(ctx)
		check(t, err)
		if !found {
			b.level = 1e6 * microsPerToken / float64(len(s.Partitions()))
		}
		sum += b.level
	}
	return sum
}

// job makes one with whatever chance gives it.
func (c *crowd) job() (job headgate.Job, class int) {
	c.n++
	pick := func(n int) bool { return c.random.IntN(n) == 0 }
	job = headgate.NewJob(fmt.Sprintf("t%d", c.random.IntN(crowdTenants)), []string{"mail", "hook"}[c.random.IntN(2)], "kind", []byte("payload"))
	job.ID, class = fmt.Sprintf("job-%d", c.n), c.random.IntN(3)
	job.Priority = headgate.DefaultClasses()[class].Name
	job.Cost = headgate.Tokens(1 + c.random.IntN(3))
	if pick(4) {
		job.ID = fmt.Sprintf("0190c2e4-7a3b-7c1d-8e2f-%012x", c.n)
	}
	if pick(3) {
		job.Deadline = time.Now().Add(time.Hour + time.Duration(c.random.IntN(1e6))*time.Millisecond)
	}
	if pick(3) {
		job.Downstream = []string{"api", "smtp"}[c.random.IntN(2)]
	}
	if pick(6) {
		job.Payload = []byte(strings.Repeat("large", 2000))
	}
	if pick(5) {
		job.Delay = time.Hour / 2
	}
	if pick(4) {
		job.Unique = headgate.Unique{Key: fmt.Sprintf("key-%d", c.n), Release: []headgate.Release{headgate.ReleaseAtEnd, headgate.ReleaseAtStart, headgate.ReleaseAtExpiry}[c.random.IntN(3)]}
	}
	if pick(4) {
		job.Headers = map[string]string{"trace": strconv.Itoa(c.n)}
	}
	return job, class
}

func (c *crowd) admit(jobs int) {
	c.t.Helper()
	for range jobs {
		job, class := c.job()
		limits := crowdLimits
		verdicts, err := c.s.of(job.Tenant).Admit(c.t.Context(), 1, []Candidate{{Job: &job, Class: class, Limits: &limits}})
		check(c.t, err)
		check(c.t, verdicts[0].Err())
	}
}

// work lets workers read some jobs and end them in each way, and then leave.
func (c *crowd) work(slots int) {
	c.t.Helper()
	ctx := c.t.Context()
	for _, part := range c.s.Partitions() {
		_, err := part.Register(ctx, "w", crowdQueues, slots, time.Minute)
		check(c.t, err)
		leases, err := part.Read(ctx, "w", crowdQueues.ID(), slots, -1, false)
		check(c.t, err)
		for i, l := range leases {
			f := Finish{Token: l.Token, Key: headgate.Key{Tenant: l.Job.Tenant, ID: l.Job.ID}}
			switch i % 4 {
			case 0:
				f.Outcome, f.Result, f.KeepResult = Complete, []byte("result"), time.Hour
				c.ended = append(c.ended, f.Key)
			case 1:
				f.Outcome, f.Delay, f.Text = Retry, time.Hour, "not now"
			case 2:
				f.Outcome, f.Reason, f.Text = Kill, "discarded", "never"
			default:
				continue // reclaimed
			}
			_, _, err := part.Finish(ctx, crowdQueues.ID(), "w", []Finish{f})
			check(c.t, err)
		}
		for more := true; more; {
			more, err = part.Reclaim(ctx, "w")
			check(c.t, err)
		}
	}
}

// newCrowd fills s with what chance gives.
func newCrowd(t *testing.T, s *Store, seed uint64) *crowd {
	t.Helper()
	c := &crowd{t: t, s: s, random: rand.New(rand.NewPCG(seed, 1))} //nolint:gosec // a test
	ctx := t.Context()
	check(t, s.PutPolicy(ctx, movingPolicy(1)))
	c.admit(120)
	_, err := s.ForceBreaker(ctx, "smtp", breaker.Open, time.Hour, Intervention{Reason: "ill"})
	check(t, err)
	c.work(8)
	c.admit(60)
	for _, name := range []GateName{QueueGate("hook"), TenantGate("t4"), TenantGate("t5"), DownstreamGate("api")} {
		_, err := s.Pause(ctx, name, time.Duration(c.random.IntN(2))*time.Hour, "for a reason")
		check(t, err)
	}
	for i, part := range s.Partitions() {
		check(t, part.NoteFollowed(ctx, DeathFollower, Death{At: time.UnixMicro(int64(1000 - i))}))
	}
	check(t, s.Suspend(ctx, TenantGate("t6"), 0, "billing"))
	check(t, s.Suspend(ctx, QueueGate("later"), time.Hour, "full"))
	c.work(3)
	check(t, s.Shadow(ctx, 1, "candidate", []Question{{Tenant: "t7", Queue: "mail", Class: "low", Limits: crowdLimits, Cost: 1}}))
	_, err = s.LastTick(ctx, "nightly", time.UnixMicro(1))
	check(t, err)
	return c
}

// migration opens one, from and to being clients of the same Redis or of two.
func migration(ctx context.Context, from, to redis.UniversalClient, prefix string, partitions int) (*Migration, error) {
	return OpenMigration(ctx, from, to, MigrationConfig{Prefix: prefix, Partitions: partitions, Target: "redis://elsewhere:6379", Update: renewed})
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
	s, err := Open(t.Context(), from, Config{Prefix: redistest.Prefix(t), Partitions: r.from})
	check(t, err)
	seed := *crowdSeed
	if seed == 0 {
		seed = rand.Uint64() //nolint:gosec // a test
	}
	t.Logf("-crowd-seed %d", seed)
	return newCrowd(t, s, seed), from, to
}

var crowdSeed = flag.Uint64("crowd-seed", 0, "what the jobs that are migrated are drawn from; 0 draws that")

// check compares a migrated deployment with what it was, and lets every job run.
func (r route) check(t *testing.T, c *crowd, to redis.UniversalClient, before []string, census Census, tokens float64) {
	t.Helper()
	ctx := t.Context()
	s, err := Open(ctx, to, Config{Prefix: c.s.config.Prefix, Partitions: r.to})
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
		job := headgate.NewJob(key.Tenant, "mail", "kind", nil)
		job.ID, job.Priority = key.ID, headgate.Low
		verdicts, err := s.of(key.Tenant).Admit(ctx, 2, []Candidate{{Job: &job, Class: 2, Limits: &[headgate.Levels]headgate.Limit{}}})
		check(t, err)
		if verdicts[0].Decision != headgate.Duplicate {
			t.Errorf("%s, which has ended, is %+v", key, verdicts[0])
		}
		if result, err := s.Result(ctx, key); err != nil || string(result) != "result" {
			t.Errorf("result of %s is %q: %v", key, result, err)
		}
	}
	for i, part := range s.Partitions() {
		want := int64(1000 - r.from + 1)
		if r.elsewhere == nil && i < r.from && r.from < r.to {
			want = int64(1000 - i)
		}
		if place, err := part.Followed(ctx, DeathFollower); err != nil || place.At.UnixMicro() != want {
			t.Errorf("dead letters of partition %d are followed from %d, want %d: %v", i, place.At.UnixMicro(), want, err)
		}
		if version, _, err := part.policyVersion(ctx); err != nil || version != 2 {
			t.Errorf("partition %d is at version %d: %v", i, version, err)
		}
	}
	audit, err := s.Audit(ctx, 10, "")
	check(t, err)
	if len(audit.Entries) < 2 || !slices.ContainsFunc(audit.Entries, func(e AuditEntry) bool { return e.Author == "headgate migrate" }) {
		t.Errorf("the audit has %+v", audit.Entries)
	}
	// The process that was there before the migration is refused, whatever it does.
	job, class := c.job()
	_, err = c.s.of(job.Tenant).Admit(ctx, 1, []Candidate{{Job: &job, Class: class, Limits: &[headgate.Levels]headgate.Limit{}}})
	want := ErrPartitions
	if r.elsewhere != nil {
		want = ErrMoved
	}
	if !errors.Is(err, want) || InDoubt(err) {
		t.Errorf("an old process: %v", err)
	}
	if _, err := c.s.Partitions()[0].Register(ctx, "old", crowdQueues, 1, time.Minute); !errors.Is(err, want) {
		t.Errorf("an old worker: %v", err)
	}
	if _, err := Open(ctx, connection(c.s), Config{Prefix: c.s.config.Prefix, Partitions: r.from}); !errors.Is(err, want) {
		t.Errorf("an old process that starts: %v", err)
	}
	c.s, c.t = s, t
	c.drain()
}

// drain lets all jobs run that may, and asks that each runs once.
func (c *crowd) drain() {
	c.t.Helper()
	ctx := c.t.Context()
	for _, name := range []GateName{QueueGate("hook"), TenantGate("t4"), TenantGate("t5"), DownstreamGate("api")} {
		_, err := c.s.Unpause(ctx, name)
		check(c.t, err)
	}
	_, err := c.s.ResetBreaker(ctx, "smtp", Intervention{})
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
				key := headgate.Key{Tenant: l.Job.Tenant, ID: l.Job.ID}
				if check(c.t, l.Err); ran[key.String()] {
					c.t.Errorf("%s runs twice", key)
				}
				ran[key.String()], idle = true, 0
				_, _, err := part.Finish(ctx, crowdQueues.ID(), "w", []Finish{{Token: l.Token, Key: key, Outcome: Complete}})
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
			m, err := migration(ctx, from, to, c.s.config.Prefix, r.to)
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

// mortal is a process that dies before or after one of its commands.
type mortal struct{ left *atomic.Int32 }

func (d mortal) DialHook(next redis.DialHook) redis.DialHook { return next }

func (d mortal) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if d.left.Add(-1) < 0 {
			return errDied
		}
		err := next(ctx, cmd)
		if d.left.Add(-1) < 0 {
			return errDied
		}
		return err
	}
}

func (d mortal) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		if d.left.Add(-1) < 0 {
			return errDied
		}
		err := next(ctx, cmds)
		if d.left.Add(-1) < 0 {
			return errDied
		}
		return err
	}
}

// TestAMigrationThatIsKilledGoesOn ends a migration at ever later commands, before Redis has them or once it has answered,
// until one comes through.
func TestAMigrationThatIsKilledGoesOn(t *testing.T) {
	t.Parallel()
	for _, r := range []route{routes[1], routes[3], routes[4]} {
		t.Run(r.name, func(t *testing.T) {
			t.Parallel()
			c, from, to := r.open(t)
			ctx := t.Context()
			before, census := keptOf(ctx, t, c.s)
			tokens := tokensLeft(ctx, t, c.s)
			deaths := 0
			for {
				left := &atomic.Int32{}
				left.Store(int32(15*deaths + c.random.IntN(80)))
				clients := []redis.UniversalClient{from, to}
				for i, client := range clients {
					clients[i] = redis.NewClient(client.(*redis.Client).Options())
					clients[i].AddHook(mortal{left})
				}
				err := func() error {
					m, err := migration(ctx, clients[0], clients[1], c.s.config.Prefix, r.to)
					if err != nil {
						return err
					}
					_, err = m.Run(ctx)
					return err
				}()
				for _, client := range clients {
					check(t, client.Close())
				}
				if err == nil || errors.Is(err, ErrMoved) {
					break // All but the last answer had come.
				}
				if deaths++; !errors.Is(err, errDied) {
					t.Fatalf("after %d deaths: %v", deaths, err)
				}
			}
			if deaths < 3 {
				t.Errorf("it was killed %d times only", deaths)
			}
			t.Logf("killed %d times", deaths)
			r.check(t, c, to, before, census, tokens)
		})
	}
}

// TestAMigrationIsNotMistakenForAnother ends one early and lets others begin that have to do with its Redises.
func TestAMigrationIsNotMistakenForAnother(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	c, here, there := routes[4].open(t)
	third := anotherRedis(t)
	other, err := Open(ctx, third, Config{Prefix: c.s.config.Prefix})
	check(t, err)
	admitOne(t, other, keyOfTenant(1), headgate.Limit{})
	run := func(from, to redis.UniversalClient, partitions int) error {
		m, err := migration(ctx, from, to, c.s.config.Prefix, partitions)
		if err == nil {
			_, err = m.Run(ctx)
		}
		return err
	}
	left := &atomic.Int32{}
	left.Store(120)
	mortals := redis.NewClient(there.(*redis.Client).Options())
	defer func() { _ = mortals.Close() }()
	mortals.AddHook(mortal{left})
	if err := run(here, mortals, 4); !errors.Is(err, errDied) {
		t.Fatalf("it did not die: %v", err)
	}
	for _, wrong := range []struct {
		name       string
		from, to   redis.UniversalClient
		partitions int
		want       string
	}{
		{"its source in place", here, here, 4, `is "from" in that: end it first`},
		{"its target in place", there, there, 4, `is "to" in that: end it first`},
		{"back before it has ended", there, here, 1, `is "to" in that: end it first`},
		{"another number", here, there, 5, "to 4 partitions: end that first"},
		{"another target", here, anotherRedis(t), 4, "to another target than this one"},
		{"another source", third, there, 4, "or a part of one"},
		{"into its source", third, here, 4, "or a part of one"},
	} {
		if err := run(wrong.from, wrong.to, wrong.partitions); err == nil || !strings.Contains(err.Error(), wrong.want) {
			t.Errorf("%s: %v", wrong.name, err)
		}
	}
	if _, err := c.s.Partitions()[0].Register(ctx, "w", crowdQueues, 1, time.Minute); !errors.Is(err, ErrMigrating) || !errors.Is(err, headgate.ErrUnavailable) {
		t.Errorf("a worker in the middle: %v", err)
	}
	if _, err := Open(ctx, here, Config{Prefix: c.s.config.Prefix}); !errors.Is(err, ErrMigrating) {
		t.Errorf("a start in the middle: %v", err)
	}
	check(t, run(here, there, 4))
	check(t, run(there, here, 1)) // and back to the Redis that has a note of where it went
	s, err := Open(ctx, here, Config{Prefix: c.s.config.Prefix})
	check(t, err)
	if census, err := s.Census(ctx); err != nil || !census.Conserved() || census.Accepted != 180 {
		t.Errorf("there and back: %+v, %v", census, err)
	}
}
