package migrate

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/breaker"
	"github.com/headgate/headgate/internal/redisconn"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/redisstore"
)

// movingPolicy has something of each kind that partitions divide or keep.
func movingPolicy(version int64) store.PolicyUpdate {
	return store.PolicyUpdate{
		Expected: version - 1, Version: version, Text: fmt.Appendf(nil, `{"version":%d}`, version), Window: time.Hour, Edit: strconv.FormatInt(version, 10),
		Usage: true,
		Queues: []store.QueueSettings{
			{Queue: "mail", Classes: admission.DefaultClasses(), Horizon: time.Hour},
			{Queue: "hook", Classes: admission.DefaultClasses(), Horizon: time.Hour, KeepDead: time.Hour, Overflow: store.Overflow{Policy: store.Spillover, MaxJobs: 3, MaxSpilled: 100, LowWater: 50}},
		},
		Weights: []store.TenantWeight{{Class: admission.Medium, Weight: 2}, {Class: admission.High, Tenant: "t1", Weight: 7}},
		Caps: []store.Cap{
			{Gate: store.QueueGate("mail"), Limit: 1000},
			{Gate: store.DownstreamGate("api"), Limit: 999},
			{Gate: store.TenantGate("t2"), Limit: 50},
			{Gate: store.TenantQueueGate("t3", "hook"), Limit: 500},
			{Gate: store.TenantRateGate("t3"), Rate: admission.PerSecond(100).WithBurst(1000)},
			{Gate: store.DownstreamRateGate("api"), Rate: admission.PerSecond(1000)},
		},
		MaxParked: map[string]int{"": 1000},
	}
}

func renewed(_ []byte, version int64) (store.PolicyUpdate, error) { return movingPolicy(version), nil }

// crowd fills a deployment with tenants, and jobs in every place and with everything that a job may own.
type crowd struct {
	t      *testing.T
	prefix string
	s      store.Deployment
	random *rand.Rand
	n      int
	// ended are ids that have ended, which stay refused.
	ended []admission.Key
}

const crowdTenants = 12

var crowdQueues = store.Pool{Queues: []store.QueueWeight{{Queue: "mail", Weight: 1}, {Queue: "hook", Weight: 1}}}

// crowdLimits hardly refill, so that their tokens can be counted.
var crowdLimits = [admission.Levels]admission.Limit{
	{Tokens: 1, Per: 1000 * time.Hour, Burst: 1e6}, {Tokens: 1, Per: 1000 * time.Hour, Burst: 1e6}, {Disabled: true}, {Disabled: true},
}

// tokensLeft returns the micro-tokens of the global limit in all partitions.
func tokensLeft(ctx context.Context, t *testing.T, s store.Deployment) (sum float64) {
	t.Helper()
	for _, part := range partsOf(inRedis(s)) {
		b, found, err := part.globalBucket(ctx, "gb")
		check(t, err)
		if !found {
			b.level = 1e12 / float64(len(s.Partitions()))
		}
		sum += b.level
	}
	return sum
}

// crowdDispatch is what the record of a tenant says of its dispatches, of t3 beside the policy's own: hardly a token comes back, so that they can be counted.
func crowdDispatch(i int) string {
	switch {
	case i < 4:
		return fmt.Sprintf(`"dispatch":{"tokens":1,"per":"24h","burst":%d},`, 1000+i)
	case i == 4:
		return `"dispatch":{"enabled":false},`
	}
	return ""
}

// crowdQueueCaps is what the record of a tenant says of single queues, of t3 in hook beside the policy's own.
func crowdQueueCaps(i int) string {
	if i > 4 {
		return ""
	}
	return fmt.Sprintf(`,"queues":{"fax":{"max_running":%d},"hook":{"max_running":%d}}`, 7+i, 2000+i)
}

// homeOf returns a tenant's partition.
func homeOf(s store.Deployment, tenant string) store.Partition {
	return s.Partitions()[s.PartitionOf(tenant)]
}

// inRedis returns the partitions of a deployment.
func inRedis(s store.Deployment) []*redisstore.Partition {
	parts, _ := redisstore.PartsOf(s)
	return parts
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// job makes one with whatever chance gives it.
func (c *crowd) job() (job admission.Job, class int) {
	c.n++
	pick := func(n int) bool { return c.random.IntN(n) == 0 }
	job = admission.NewJob(fmt.Sprintf("t%d", c.random.IntN(crowdTenants)), []string{"mail", "hook"}[c.random.IntN(2)], "kind", []byte("payload"))
	job.ID, class = fmt.Sprintf("job-%d", c.n), c.random.IntN(3)
	job.Priority = admission.DefaultClasses()[class].Name
	job.Cost = admission.Tokens(1 + c.random.IntN(3))
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
		job.Unique = admission.Unique{Key: fmt.Sprintf("key-%d", c.n), Release: []admission.Release{admission.ReleaseAtEnd, admission.ReleaseAtStart, admission.ReleaseAtExpiry}[c.random.IntN(3)]}
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
		verdicts, err := homeOf(c.s, job.Tenant).Admit(c.t.Context(), 1, []store.Candidate{{Job: &job, Class: class, Limits: &limits, Usage: crowdUsage}})
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
			f := store.Finish{Token: l.Token, Key: admission.Key{Tenant: l.Job.Tenant, ID: l.Job.ID}}
			switch i % 4 {
			case 0:
				f.Outcome, f.Result, f.KeepResult = store.Complete, []byte("result"), time.Hour
				c.ended = append(c.ended, f.Key)
			case 1:
				f.Outcome, f.Delay, f.Text = store.Retry, time.Hour, "not now"
			case 2:
				f.Outcome, f.Reason, f.Text = store.Kill, "discarded", "never"
			default:
				continue // reclaimed
			}
			_, _, err := part.Finish(ctx, crowdQueues.ID(), "w", []store.Finish{f})
			check(c.t, err)
		}
		for more := true; more; {
			more, err = part.Reclaim(ctx, "w")
			check(c.t, err)
		}
	}
}

// newCrowd fills s with what chance gives.
func newCrowd(t *testing.T, s store.Deployment, prefix string, seed uint64) *crowd {
	t.Helper()
	c := &crowd{t: t, prefix: prefix, s: s, random: rand.New(rand.NewPCG(seed, 1))} //nolint:gosec // a test
	ctx := t.Context()
	check(t, s.PutPolicy(ctx, movingPolicy(1)))
	c.admit(120)
	_, err := s.ForceBreaker(ctx, "smtp", breaker.Open, time.Hour, store.Intervention{Reason: "ill"})
	check(t, err)
	c.work(8)
	c.admit(60)
	for _, name := range []store.GateName{store.QueueGate("hook"), store.TenantGate("t4"), store.TenantGate("t5"), store.DownstreamGate("api")} {
		_, err := s.Pause(ctx, name, time.Duration(c.random.IntN(2))*time.Hour, store.Intervention{Reason: "for a reason"})
		check(t, err)
	}
	for i, part := range s.Partitions() {
		check(t, part.NoteFollowed(ctx, store.DeathFollower, store.Death{At: time.UnixMicro(int64(1000 - i))}))
	}
	check(t, s.Suspend(ctx, store.TenantGate("t6"), 0, store.Intervention{Reason: "billing"}))
	check(t, s.Suspend(ctx, store.QueueGate("later"), time.Hour, store.Intervention{Reason: "full"}))
	for _, target := range []store.GateName{store.ScaleAll, store.TenantGate("t5")} {
		_, err := s.ScaleLimits(ctx, target, 1, time.Hour, store.Intervention{Author: "ada", Reason: "fire"})
		check(t, err)
	}
	for i := range crowdTenants - 2 { // Two have no record.
		_, err := s.PutRecord(ctx, store.RecordEdit{Tenant: fmt.Sprintf("t%d", i), Policy: 1, Text: fmt.Appendf(nil, `{"tier":"tier-%d","max_running":%d,%s"overflow":{"policy":"reject","max_jobs":%d},"limit":{"tokens":%d}%s}`, i%3, 1000+i, crowdDispatch(i), 1_000_000+i, i+1, crowdQueueCaps(i))})
		check(t, err)
	}
	check(t, s.SpreadPolicy(ctx)) // Who was in is counted.
	c.work(3)
	check(t, s.Shadow(ctx, 1, "candidate", []store.Question{{Tenant: "t7", Queue: "mail", Class: "low", Limits: crowdLimits, Cost: 1}}))
	_, err = s.Partitions()[0].LastTick(ctx, "nightly", time.UnixMicro(1))
	check(t, err)
	first := inRedis(s)[0].Conn()
	for _, ago := range []int64{0, 1, 15} { // What queues were asked for.
		check(t, redisconn.Client(first).HSet(ctx, first.Partition.Rates(time.Now().Unix()/86400-ago), "mail", fmt.Sprint("points of day ", ago)).Err())
	}
	return c
}
