package migrate

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/internal/redisconn"
	"github.com/headgate/headgate/internal/redistest"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/redisstore"
)

// TestAMigrationThatGoesOnKeepsRatesOfRecords: one that was ended after it had taken records out of their old partition finds the policy's rates there, and leaves those of
// the records, and their tokens, in force where the tenants are.
func TestAMigrationThatGoesOnKeepsRatesOfRecords(t *testing.T) {
	t.Parallel()
	ctx, client, prefix := t.Context(), redistest.Shared(t).Client(t), redistest.Prefix(t)
	s, err := redisstore.Open(ctx, client, redisstore.Config{Prefix: prefix})
	check(t, err)
	check(t, s.PutPolicy(ctx, movingPolicy(1)))
	for i := range crowdTenants {
		_, err := s.PutRecord(ctx, store.RecordEdit{Tenant: fmt.Sprintf("t%d", i), Policy: 1, Text: []byte(`{"dispatch":{"tokens":1,"per":"24h","burst":7}}`)})
		check(t, err)
	}
	first := inRedis(s)[0].Conn()
	for i := range crowdTenants { // Four of seven tokens are gone.
		gate := fmt.Sprintf("r:t%d", i)
		text, err := redisconn.Client(first).HGet(ctx, first.Partition.Gates(), gate).Result()
		check(t, err)
		bucket := strings.Split(text, ":")
		bucket[0], bucket[2] = strings.TrimSuffix(bucket[0], "7000000")+"3000000", strconv.FormatInt((4*24*time.Hour).Microseconds(), 10)
		check(t, redisconn.Client(first).HSet(ctx, first.Partition.Gates(), gate, strings.Join(bucket, ":")).Err())
	}
	parts := 2
	m, err := migration(ctx, client, client, prefix, parts)
	for check(t, err); !m.moves(0, "t3"); check(t, err) { // It has a rate by the policy, too.
		parts++
		m, err = migration(ctx, client, client, prefix, parts)
	}
	for _, step := range []func(context.Context) error{m.fence, m.copyPartitions, m.storePolicy, m.copyRest, m.remove, m.copyPartitions, m.storePolicy, m.copyRest, m.remove, m.commit, m.tidy} {
		check(t, step(ctx))
	}
	s, err = redisstore.Open(ctx, client, redisstore.Config{Prefix: prefix, Partitions: parts})
	check(t, err)
	for i, part := range inRedis(s) {
		rated := map[string]bool{}
		for k := range crowdTenants {
			if tenant := fmt.Sprintf("t%d", k); s.PartitionOf(tenant) == i {
				rated[tenant] = true
			}
		}
		for _, line := range ratesOf(ctx, t, part.Conn(), rated) {
			if !strings.HasSuffix(line, "|7000000 with 3000000") {
				t.Error(line)
			}
		}
	}
}

// TestAMigrationCountsJobsIntoTheBoundsOfTheirRecords: of one whose record has got a tier, or a bound of its own, since they entered, and which were not counted into that yet.
func TestAMigrationCountsJobsIntoTheBoundsOfTheirRecords(t *testing.T) {
	t.Parallel()
	for what, record := range map[string]string{"by its tier": `{"tier":"gold"}`, "of its own": `{"queues":{"mail":{"overflow":{"policy":"reject","max_jobs":4}}}}`} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			ctx, client, prefix := t.Context(), redistest.Shared(t).Client(t), redistest.Prefix(t)
			s, err := redisstore.Open(ctx, client, redisstore.Config{Prefix: prefix, Partitions: 2})
			check(t, err)
			bounded := movingPolicy(1)
			bounded.Queues[0].Tiers = map[string]store.Overflow{"gold": {Policy: store.Reject, MaxJobs: 4}}
			check(t, s.PutPolicy(ctx, bounded))
			again := func(_ []byte, version int64) (store.PolicyUpdate, error) {
				next := bounded
				next.Expected, next.Version, next.Text, next.Edit = version-1, version, fmt.Appendf(nil, `{"version":%d}`, version), strconv.FormatInt(version, 10)
				return next, nil
			}
			tenant := "ann"
			for s.PartitionOf(tenant) == 0 { // To a partition that stays, which counts nothing anew for its policy.
				tenant += "n"
			}
			enter := func(version int64, from, n int) (admitted int) {
				t.Helper()
				for i := range n {
					job := admission.NewJob(tenant, "mail", "kind", nil)
					job.ID, job.Priority = fmt.Sprintf("job-%d", from+i), admission.Medium
					verdicts, err := homeOf(s, tenant).Admit(ctx, version, []store.Candidate{{Job: &job, Class: 1, Limits: &crowdLimits}})
					check(t, err)
					if verdicts[0].Decision == admission.Admitted {
						admitted++
					}
				}
				return admitted
			}
			if n := enter(1, 0, 3); n != 3 {
				t.Fatalf("%d of 3 were admitted without a bound", n)
			}
			_, err = s.PutRecord(ctx, store.RecordEdit{Tenant: tenant, Policy: 1, Text: []byte(record), Bounded: true, LongestFill: time.Minute})
			check(t, err)
			m, err := Open(ctx, client, client, Config{Prefix: prefix, Partitions: 1, Update: again})
			check(t, err)
			_, err = m.Run(ctx)
			check(t, err)
			s, err = redisstore.Open(ctx, client, redisstore.Config{Prefix: prefix})
			check(t, err)
			check(t, s.SpreadPolicy(ctx))
			if n := enter(2, 3, 3); n != 1 {
				t.Errorf("beside 3 jobs %d were admitted to a bound of 4", n)
			}
		})
	}
}

// TestAMigrationForgetsSharesOfTheGlobalRate: they are multiples of even parts, of which there are others then.
func TestAMigrationForgetsSharesOfTheGlobalRate(t *testing.T) {
	t.Parallel()
	client := redistest.Shared(t).Client(t)
	prefix := redistest.Prefix(t)
	s, err := redisstore.Open(t.Context(), client, redisstore.Config{Prefix: prefix, Partitions: 3})
	check(t, err)
	for i, units := range []int{2500, 250, 250} {
		conn := inRedis(s)[i].Conn()
		_, err := conn.Run(t.Context(), "share", conn.Now, 1, "test", 3, "global", units, 3000)
		check(t, err)
	}
	const tokens = 6
	shares, err := s.GlobalShares(t.Context(), tokens)
	check(t, err)
	if want := []float64{5, 0.5, 0.5}; !slices.Equal(shares, want) {
		t.Errorf("before there are shares %v, want %v", shares, want)
	}
	m, err := migration(t.Context(), client, client, prefix, 2)
	check(t, err)
	_, err = m.Run(t.Context())
	check(t, err)
	if _, err = redisstore.Open(t.Context(), client, redisstore.Config{Prefix: prefix, Partitions: 3}); !errors.Is(err, admission.ErrPartitions) {
		t.Fatalf("opened with three partitions: %v", err)
	}
	if s, err = redisstore.Open(t.Context(), client, redisstore.Config{Prefix: prefix, Partitions: 2}); err != nil {
		t.Fatal(err)
	}
	shares, err = s.GlobalShares(t.Context(), tokens)
	check(t, err)
	if want := []float64{3, 3}; !slices.Equal(shares, want) {
		t.Errorf("there are shares %v, want %v", shares, want)
	}
}

// TestAMigrationDividesTheWindowOfTheGlobalLimit: what is left of it, and of what others have beside what is kept of it, goes to the partitions that
// there are then, and all of them together admit that and no more.
func TestAMigrationDividesTheWindowOfTheGlobalLimit(t *testing.T) {
	t.Parallel()
	fixed, err := admission.FixedWindow(60, "month", "", "Europe/Berlin")
	check(t, err)
	sliding, err := admission.SlidingWindow(60, "744h")
	check(t, err)
	log, err := admission.SlidingLog(60, "744h")
	check(t, err)
	for name, quota := range map[string]admission.Limit{"fixed_window": fixed, "sliding_window": sliding, "sliding_log": log, "token_bucket": {Tokens: 1, Per: 744 * time.Hour, Burst: 60}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			windowIsDivided(t, quota)
		})
	}
}

func windowIsDivided(t *testing.T, quota admission.Limit) {
	t.Helper()
	client := redistest.Shared(t).Client(t)
	prefix := redistest.Prefix(t)
	s, err := redisstore.Open(t.Context(), client, redisstore.Config{Prefix: prefix, Partitions: 3})
	check(t, err)
	others := quota.Keeping(50)
	take := func(quota admission.Limit, most int) (admitted int) {
		t.Helper()
		for i := 0; i < 400 && admitted < most; i++ {
			q := store.Question{Tenant: fmt.Sprintf("t%d", i%40), Cost: 1, Limits: [admission.Levels]admission.Limit{quota, {Disabled: true}, {Disabled: true}, {Disabled: true}}}
			granted, _, err := s.Check(t.Context(), 0, false, []store.Question{q})
			check(t, err)
			if granted {
				admitted++
			}
		}
		return admitted
	}
	before := take(others, 25)
	m, err := migration(t.Context(), client, client, prefix, 2)
	check(t, err)
	_, err = m.Run(t.Context())
	check(t, err)
	s, err = redisstore.Open(t.Context(), client, redisstore.Config{Prefix: prefix, Partitions: 2})
	check(t, err)
	after := take(others, 400)
	if before+after > 30 || before+after < 27 { // A part of a token in each partition is nobody's.
		t.Errorf("%d of others were admitted before and %d behind it, of 30", before, after)
	}
	if all := before + after + take(quota, 400); all > 60 || all < 58 {
		t.Errorf("%d were admitted of 60", all)
	}
}
