package redisstore

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"pgregory.net/rapid"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/breaker"
	"github.com/headgate/headgate/internal/redisconn"
	"github.com/headgate/headgate/internal/redistest"
	"github.com/headgate/headgate/lua"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/redisstore/internal/codec"
)

// openParts returns a store of several partitions with n tenants, each with a waiting job of its number in the queue mail.
func openParts(t *testing.T, partitions, tenants int) *many {
	t.Helper()
	s, err := openMany(t.Context(), redistest.Shared(t).Client(t), Config{Prefix: redistest.Prefix(t), Partitions: partitions})
	check(t, err)
	for i := range tenants {
		admitOne(t, s, keyOfTenant(i), admission.Limit{})
	}
	return s
}

func keyOfTenant(i int) admission.Key {
	return admission.Key{Tenant: fmt.Sprintf("tenant-%d", i), ID: fmt.Sprintf("job-%d", i)}
}

// admitOne sends a job to its partition.
func admitOne(t *testing.T, s *many, key admission.Key, global admission.Limit) admission.Verdict {
	t.Helper()
	job := admission.NewJob(key.Tenant, "mail", "t", []byte("x"))
	job.ID, job.Priority = key.ID, admission.Medium
	verdicts, err := s.of(key.Tenant).Admit(t.Context(), 0, []store.Candidate{{Job: &job, Class: 1, Limits: &[admission.Levels]admission.Limit{global}}})
	check(t, err)
	return verdicts[0]
}

func TestWhatIsAboutAllIsAboutAllPartitions(t *testing.T) {
	t.Parallel()
	const tenants = 40
	s := openParts(t, 4, tenants)
	ctx := t.Context()
	for i := range tenants {
		if sight, err := s.Look(ctx, keyOfTenant(i)); err != nil || sight.Place != admission.PlaceWaiting {
			t.Fatalf("tenant %d: %+v, %v", i, sight, err)
		}
	}
	queue, err := s.Queue(ctx, "mail")
	check(t, err)
	census, err := s.Census(ctx)
	check(t, err)
	remaining, err := s.Remaining(ctx, "mail")
	check(t, err)
	top, _, err := s.WaitingTenants(ctx, "mail", 10)
	check(t, err)
	_, classes, err := s.Peek(ctx, "mail", 7)
	check(t, err)
	if queue.Waiting() != tenants || census.Accepted != tenants || !census.Conserved() || remaining.Total() != tenants || len(top) != 10 {
		t.Errorf("queue %+v, census %+v, remaining %+v, top %v", queue, census, remaining, top)
	}
	if len(classes[1].Next) != 7 || classes[1].Runnable != tenants {
		t.Errorf("peeked %d, runnable %d", len(classes[1].Next), classes[1].Runnable)
	}
	if _, err := s.Queue(ctx, "nobody"); !errors.Is(err, store.ErrUnknownQueue) {
		t.Errorf("an unknown queue: %v", err)
	}

	seen := map[admission.Key]int{}
	for query := (store.ListQuery{Queue: "mail", Place: admission.PlaceWaiting, Limit: 7}); ; {
		page, err := s.List(ctx, query)
		check(t, err)
		if len(page.Jobs) > query.Limit {
			t.Fatalf("a page of %d jobs", len(page.Jobs))
		}
		for _, job := range page.Jobs {
			seen[job.Key]++
		}
		if query.Cursor = page.Cursor; query.Cursor == "" {
			break
		}
	}
	for i := range tenants {
		if n := seen[keyOfTenant(i)]; n != 1 {
			t.Errorf("tenant %d is listed %d times", i, n)
		}
	}

	keys := make([]admission.Key, 0, tenants)
	for i := range tenants / 2 {
		_, _, err := s.Cancel(ctx, keyOfTenant(i), store.Intervention{})
		check(t, err)
		keys = append(keys, keyOfTenant(i))
	}
	if purged, err := s.Purge(ctx, keys, store.Intervention{}); err != nil || len(purged) != len(keys) {
		t.Errorf("purged %v: %v", purged, err)
	}
	if counters, err := s.Counters(ctx); err != nil || counters.Left["cancelled"] != tenants/2 {
		t.Errorf("%+v, %v", counters, err)
	}
}

func TestAPauseIsInAllPartitionsAndATenantsInItsOwn(t *testing.T) {
	t.Parallel()
	s := openParts(t, 3, 9)
	ctx := t.Context()
	held := func(name store.GateName) (n int) {
		for _, part := range s.parts {
			if _, found, err := part.gateState(ctx, name); err != nil {
				t.Fatal(err)
			} else if found {
				n++
			}
		}
		return n
	}
	_, err := s.Pause(ctx, store.QueueGate("mail"), time.Minute, store.Intervention{Reason: "why"})
	check(t, err)
	_, err = s.Pause(ctx, store.TenantGate("tenant-1"), 0, store.Intervention{})
	check(t, err)
	check(t, s.Suspend(ctx, store.QueueGate("mail"), time.Minute, store.Intervention{Reason: "later"}))
	if queue, tenant := held(store.QueueGate("mail")), held(store.TenantGate("tenant-1")); queue != 3 || tenant != 1 {
		t.Errorf("the queue's gate is in %d partitions, the tenant's in %d", queue, tenant)
	}
	for i := range 9 {
		if v := admitOne(t, s, admission.Key{Tenant: keyOfTenant(i).Tenant, ID: "late"}, admission.Limit{}); v.Reason != admission.ReasonPaused {
			t.Errorf("tenant %d: %+v", i, v)
		}
	}
	gates, err := s.Gates(ctx)
	check(t, err)
	suspensions, err := s.Suspensions(ctx)
	check(t, err)
	if len(gates) != 2 || len(suspensions) != 1 || gates[0].Reason != "why" {
		t.Errorf("gates %+v, suspensions %+v", gates, suspensions)
	}
	if was, err := s.Unpause(ctx, store.QueueGate("mail"), store.Intervention{}); !was || err != nil || held(store.QueueGate("mail")) != 0 {
		t.Errorf("was paused: %t, %v; still in %d partitions", was, err, held(store.QueueGate("mail")))
	}
	_, err = s.ForceBreaker(ctx, "api", breaker.Open, 0, store.Intervention{})
	check(t, err)
	for i, part := range s.parts {
		if state, err := part.Breaker(ctx, "api"); err != nil || state.State != breaker.Open {
			t.Errorf("partition %d: %+v, %v", i, state, err)
		}
	}
	if all, err := s.Breakers(ctx); err != nil || len(all) != 1 {
		t.Errorf("%+v, %v", all, err)
	}
	if _, err := s.ResetBreaker(ctx, "nobody", store.Intervention{}); !errors.Is(err, store.ErrNoBreaker) {
		t.Errorf("reset of an unknown breaker: %v", err)
	}
}

// TestAPolicyReachesEveryPartition ends an edit at each of its steps, as if the process had died, and lets another bring the
// partitions up.
func TestAPolicyReachesEveryPartition(t *testing.T) {
	t.Parallel()
	const partitions = 3
	s := openParts(t, partitions, 0)
	ctx := t.Context()
	versions := func() (all [partitions]int64) {
		for i, part := range s.parts {
			var err error
			all[i], _, err = part.PolicyEdit(ctx)
			check(t, err)
		}
		return all
	}
	sum := func(name store.GateName) (limit int) {
		for _, part := range s.parts {
			g, _, err := part.gateState(ctx, name)
			check(t, err)
			limit += g.Limit
		}
		return limit
	}
	for done := range partitions {
		u := store.PolicyUpdate{
			Expected: int64(done), Version: int64(done + 1), Text: []byte(`{}`), Window: time.Minute, Edit: strconv.Itoa(done),
			Caps: []store.Cap{{Gate: store.QueueGate("mail"), Limit: 7 + done}, {Gate: store.DownstreamRateGate("api"), Rate: admission.PerSecond(4).WithBurst(5)}},
		}
		err := dyingAfter(t, s, done+1).PutPolicy(ctx, u)
		if left := versions(); (err == nil) != (done == partitions-1) || left[0] != u.Version {
			t.Fatalf("an edit that ends after %d partitions: %v, versions %v", done+1, err, left)
		}
		check(t, s.SpreadPolicy(ctx))
		if all := versions(); all != [partitions]int64{u.Version, u.Version, u.Version} {
			t.Errorf("after the edit ended at %d the versions are %v", done+1, all)
		}
		if limit := sum(store.QueueGate("mail")); limit > 7+done {
			t.Errorf("the parts of a cap of %d add up to %d", 7+done, limit)
		}
		check(t, s.newBalancer().Step(ctx)) // What an edit adds comes into force with a look at all.
		if limit := sum(store.QueueGate("mail")); limit != (7+done)/partitions*partitions {
			t.Errorf("the even parts of a cap of %d add up to %d", 7+done, limit)
		}
	}
	small := store.PolicyUpdate{Expected: partitions, Version: partitions + 1, Text: []byte(`{}`), Window: time.Minute, Caps: []store.Cap{{Gate: store.QueueGate("mail"), Limit: 2}}}
	if field, ok := errors.AsType[*admission.FieldError](s.PutPolicy(ctx, small)); !ok || field.Allowed != "3 or more: one for each partition" {
		t.Errorf("a cap of 2 in 3 partitions: %v", field)
	}
	if err := s.PutPolicy(ctx, store.PolicyUpdate{Expected: 1, Version: 2, Text: []byte(`{}`), Window: time.Minute}); !errors.Is(err, store.ErrConflict) {
		t.Errorf("an edit of an old version: %v", err)
	}
}

// dying is a process that dies when it is to store the policy of a further partition.
type dying struct{ left *atomic.Int32 }

func (d dying) DialHook(next redis.DialHook) redis.DialHook { return next }

func (d dying) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

func (d dying) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	policy := lua.Scripts("", "3")["policy"]()
	return func(ctx context.Context, cmd redis.Cmder) error {
		args := cmd.Args()
		if len(args) <= 9 || args[1] != policy.Function || args[9] == store.OnlyAsk {
			return next(ctx, cmd)
		}
		if d.left.Add(-1) < 0 {
			return errDied
		}
		err := next(ctx, cmd)
		if err != nil {
			d.left.Add(1) // Redis did not know the script yet.
		}
		return err
	}
}

var errDied = errors.New("the process has died")

// dyingAfter returns the same deployment as seen by a process that dies after it has stored the policy of so many partitions.
func dyingAfter(t *testing.T, s *many, partitions int) *many {
	t.Helper()
	client := redistest.Shared(t).Client(t)
	left := &atomic.Int32{}
	left.Store(int32(partitions)) //nolint:gosec // few
	client.AddHook(dying{left})
	other, err := openMany(t.Context(), client, s.parts[0].config)
	check(t, err)
	return other
}

// TestTheGlobalLimitHoldsOverAllPartitions (law L1): in every window, whatever the partitions admit adds up to no more than the
// burst and what has come in; and a burst that divides evenly is there for those that use it evenly.
func TestTheGlobalLimitHoldsOverAllPartitions(t *testing.T) {
	t.Parallel()
	const partitions = 4
	client, prefix := redistest.Shared(t).Client(t), redistest.Prefix(t)
	run, refused := 0, 0
	rapid.Check(t, func(rt *rapid.T) {
		run++
		defer redistest.Clear(t, prefix+"-"+strconv.Itoa(run))
		s, err := openMany(t.Context(), client, Config{Prefix: prefix + "-" + strconv.Itoa(run), Partitions: partitions})
		check(t, err)
		limit := admission.Limit{
			Tokens: admission.Tokens(rapid.IntRange(1, 40).Draw(rt, "tokens")), Per: time.Second,
			Burst: admission.Tokens(rapid.IntRange(1, 30).Draw(rt, "burst")),
		}
		// The bucket of one Redis, which admits as much as any may: what is admitted in parts must fit.
		level, at := float64(limit.Burst), int64(1_700_000_000_000_000)
		last := at
		for i := range 60 {
			at += int64(rapid.IntRange(0, 200_000).Draw(rt, "us"))
			key := admission.Key{Tenant: fmt.Sprintf("tenant-%d", rapid.IntRange(0, 15).Draw(rt, "tenant")), ID: strconv.Itoa(i)}
			part := s.of(key.Tenant)
			part.conn.Now = strconv.FormatInt(at, 10)
			if v := admitOne(t, s, key, limit); v.Decision != admission.Admitted {
				refused++
				continue
			}
			level = min(float64(limit.Burst), level+float64(limit.Rate())*float64(at-last)/1e6) - 1
			if last = at; level < -1e-6 {
				rt.Fatalf("job %d is %g tokens above the limit %+v", i, -level, limit)
			}
		}
	})
	if refused == 0 {
		t.Error("no limit was ever reached")
	}
	s := openParts(t, partitions, 0)
	for i, admitted := 0, [partitions]int{}; i < 200; i++ {
		part := s.PartitionOf(keyOfTenant(i).Tenant)
		v := admitOne(t, s, keyOfTenant(i), admission.Limit{Tokens: 1, Per: time.Hour, Burst: 3 * partitions})
		if v.Decision == admission.Admitted {
			admitted[part]++
		}
		if (v.Decision == admission.Admitted) != (admitted[part] <= 3 && v.Reason == admission.ReasonNone) || v.Decision != admission.Admitted && admitted[part] < 3 {
			t.Fatalf("after %v: %+v", admitted, v)
		}
	}
}

// gateState returns a gate as it is stored.
func (s *Partition) gateState(ctx context.Context, name store.GateName) (g store.GateState, found bool, err error) {
	value, err := redisconn.Client(s.conn).HGet(ctx, s.conn.Partition.Gates(), string(name)).Result()
	if err != nil {
		if redisconn.IsNil(err) {
			err = nil
		}
		return store.GateState{}, false, err
	}
	g, err = codec.ParseGate(string(name), value, nil)
	return g, err == nil && !strings.HasPrefix(value, "*"), err
}
