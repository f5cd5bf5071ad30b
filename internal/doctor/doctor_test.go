package doctor

import (
	"context"
	"errors"
	"fmt"
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

// finding returns a line of a report.
func finding(t *testing.T, r Report, name string) Finding {
	t.Helper()
	for _, f := range r.Findings {
		if f.Name == name {
			return f
		}
	}
	t.Errorf("the report has no line %s", name)
	return Finding{}
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// open returns a deployment of its own.
func open(t *testing.T, partitions int) (s store.Deployment, client *redis.Client, config redisstore.Config) {
	t.Helper()
	client, config = redistest.Shared(t).Client(t), redisstore.Config{Prefix: redistest.Prefix(t), Partitions: partitions}
	s, err := redisstore.Open(t.Context(), client, config)
	check(t, err)
	return s, client, config
}

// admit sends a job to its partition.
func admit(t *testing.T, s store.Deployment, tenant, id string, delay time.Duration) {
	t.Helper()
	job := admission.NewJob(tenant, "mail", "t", []byte("x"))
	job.ID, job.Priority, job.Delay = id, admission.Medium, delay
	part := s.Partitions()[s.PartitionOf(tenant)]
	verdicts, err := part.Admit(t.Context(), 0, []store.Candidate{{Job: &job, Class: 1, Limits: &[admission.Levels]admission.Limit{}}})
	check(t, err)
	check(t, verdicts[0].Err())
}

// look returns a line of what Run tells, and asks that it says what to do unless all is well.
func look(t *testing.T, s store.Deployment, name string) Finding {
	t.Helper()
	r, err := Run(t.Context(), s)
	check(t, err)
	f := finding(t, r, name)
	if (f.Health != HealthOK) != (f.Do != "") {
		t.Errorf("%+v", f)
	}
	return f
}

func expect(t *testing.T, s store.Deployment, name string, health Health, text string) {
	t.Helper()
	if f := look(t, s, name); f.Health != health || !strings.Contains(f.Text, text) {
		t.Errorf("%+v, want %s %q", f, health, text)
	}
}

func TestDoctorNamesTheRisk(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		options redistest.Options
		line    string
		health  Health
		text    string
	}{
		"a store that keeps nothing": {redistest.Options{}, "persistence", HealthWarn, "a crash or a restart loses every acknowledged job"},
		"snapshots":                  {redistest.Options{Args: []string{"--save", "900 1"}}, "persistence", HealthWarn, "since the last one, now "},
		"append-only, everysec":      {redistest.Options{AppendFsync: "everysec"}, "persistence", HealthOK, "up to 2 seconds of acknowledged jobs, one of Redis alone none, if BGREWRITEAOF follows it"},
		"append-only, no":            {redistest.Options{AppendFsync: "no"}, "persistence", HealthWarn, "some 30 seconds"},
		"append-only, always":        {redistest.Options{AppendFsync: "always"}, "persistence", HealthOK, "loses no job that was acknowledged, if BGREWRITEAOF follows it"},
		"eviction of everything":     {redistest.Options{MaxMemory: "64mb", MaxMemoryPolicy: "allkeys-lru"}, "eviction", HealthFail, "deletes jobs"},
		"eviction of what expires":   {redistest.Options{MaxMemory: "64mb", MaxMemoryPolicy: "volatile-lru"}, "eviction", HealthWarn, "forgets levels of limits"},
		"no maxmemory":               {redistest.Options{}, "memory", HealthWarn, "no maxmemory"},
		"a full one":                 {redistest.Options{MaxMemory: "900kb"}, "memory", HealthFail, "jobs are refused"},
		"a replica":                  {redistest.Options{Args: []string{"--replicaof", "127.0.0.1 1"}}, "replication", HealthFail, "refuses writes"},
		"no CONFIG":                  {redistest.Options{Args: []string{"--rename-command", "CONFIG", ""}}, "persistence", HealthWarn, "does not tell"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r, err := stored(t.Context(), redistest.Start(t, row.options).Client(t), redisstore.Config{})
			check(t, err)
			if f := finding(t, r, row.line); f.Health != row.health || !strings.Contains(f.Text, row.text) || (f.Health != HealthOK) != (f.Do != "") {
				t.Errorf("%+v", f)
			}
			if row.health == HealthFail && r.Health != HealthFail {
				t.Errorf("worst %s", r.Health)
			}
		})
	}
}

func TestDoctorLooksAtTheState(t *testing.T) {
	t.Parallel()
	s, client, config := open(t, 1)
	for name, text := range map[string]string{
		"version": "Redis ", "clock": "the clock of Redis is ", "partitions": "1, keys ", "jobs": "0 jobs live", "policy": "version 0",
		"dedup": "remembered for 30s, at most 4000000 of them: 66667 jobs/s", "workers": "0 registered", "timers": "none is set", "types": "no job has come",
		"conservation": "each of 0 accepted jobs",
	} {
		expect(t, s, name, HealthOK, text)
	}
	config.EndedCap = 600
	s, err := redisstore.Open(t.Context(), client, config)
	check(t, err)
	redistest.SetState(t, client, redisstore.Keys(s).State(), "en", 500)
	redistest.SetState(t, client, redisstore.Keys(s).State(), "eo", 99)
	admit(t, s, "acme", "past", time.Hour)
	admit(t, s, "acme", "waits", 0)
	check(t, client.HSet(t.Context(), redisstore.Keys(s).State(), "pv", 7).Err())
	check(t, client.ZAdd(t.Context(), redisstore.Keys(s).Later(), redis.Z{Score: 1_700_000_000_000_000, Member: "acme:past"}).Err())
	for name, text := range map[string]string{"dedup": "10 jobs/s", "policy": "text is gone", "timers": "late: retries"} {
		expect(t, s, name, HealthFail, text)
	}
	expect(t, s, "workers", HealthWarn, "2 jobs live that are no dead letters")
	if f := look(t, s, "jobs"); !strings.Contains(f.Text, "bytes each") {
		t.Errorf("%+v", f)
	}
}

// TestDoctorWarnsOfNoWorkersOnlyWhereSomethingIsToRun: dead letters wait for nobody.
func TestDoctorWarnsOfNoWorkersOnlyWhereSomethingIsToRun(t *testing.T) {
	t.Parallel()
	s, _, _ := open(t, 1)
	ctx, pool := t.Context(), store.Pool{Queues: []store.QueueWeight{{Queue: "mail", Weight: 1}}}
	_, err := s.Partitions()[0].Register(ctx, "w", pool, 1, time.Minute)
	check(t, err)
	admit(t, s, "acme", "a", 0)
	leases, err := s.Partitions()[0].Read(ctx, "w", pool.ID(), 1, -1, false)
	check(t, err)
	_, _, err = s.Partitions()[0].Finish(ctx, pool.ID(), "w", []store.Finish{{
		Token: leases[0].Token, Key: admission.Key{Tenant: "acme", ID: "a"}, Outcome: store.Kill, Reason: "discarded", Text: "never",
	}})
	check(t, err)
	for more := true; more; {
		more, err = s.Partitions()[0].Reclaim(ctx, "w")
		check(t, err)
	}
	expect(t, s, "workers", HealthOK, "0 registered")
	admit(t, s, "acme", "b", 0)
	expect(t, s, "workers", HealthWarn, "1 jobs live that are no dead letters")
}

// TestDoctorNamesAForgottenHold after an hour, unless it ends by itself.
func TestDoctorNamesAForgottenHold(t *testing.T) {
	t.Parallel()
	s, _, _ := open(t, 1)
	ctx := t.Context()
	old := store.Intervention{Author: "ada", Reason: "house", Own: true, Since: time.Now().Add(-2 * time.Hour)}
	expect(t, s, "holds", HealthOK, "0 pauses")
	_, err := s.Pause(ctx, store.QueueGate("mail"), time.Hour, old)
	check(t, err)
	_, err = s.Pause(ctx, store.TenantGate("new"), 0, store.Intervention{Author: "bob"})
	check(t, err)
	expect(t, s, "holds", HealthOK, "2 pauses")
	_, err = s.Pause(ctx, store.TenantGate("acme"), 0, old)
	check(t, err)
	expect(t, s, "holds", HealthWarn, "tenant acme is paused by ada, house, 2h0m0s ago")
}

// TestDoctorTellsOfUnknownTypes for a while after the last one.
func TestDoctorTellsOfUnknownTypes(t *testing.T) {
	t.Parallel()
	s, client, _ := open(t, 1)
	for age, health := range map[time.Duration]Health{time.Minute: HealthWarn, time.Hour: HealthOK} {
		last := time.Now().Add(-age).UnixMicro()
		check(t, client.HSet(t.Context(), redisstore.Keys(s).State(), "ut:mail", fmt.Sprintf("3|%d|welcome", last)).Err())
		text := "no job has come"
		if health == HealthWarn {
			text = "queue mail, 3 times in all, the last of type welcome"
		}
		expect(t, s, "types", health, text)
	}
}

// stored examines what redisstore.Open might refuse.
func stored(ctx context.Context, client redis.UniversalClient, config redisstore.Config) (Report, error) {
	parts, err := redisstore.Stored(ctx, client, config)
	if err != nil {
		return Report{}, err
	}
	return Examine(ctx, parts)
}

// TestDoctorLooksAtNewerData, which Open refuses, and while a deployment is migrated or damaged.
func TestDoctorLooksAtNewerData(t *testing.T) {
	t.Parallel()
	s, client, config := open(t, 1)
	check(t, client.HSet(t.Context(), redisstore.Keys(s).State(), redisconn.DataField, redisstore.DataVersion+1).Err())
	r, err := stored(t.Context(), client, config)
	check(t, err)
	if f := finding(t, r, "data"); f.Health != HealthFail || f.Do == "" {
		t.Errorf("%+v", f)
	}
}

func TestDoctorNeedsAnAnswer(t *testing.T) {
	t.Parallel()
	client := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1", MaxRetries: -1, DialerRetries: 1})
	defer func() { _ = client.Close() }()
	if _, err := stored(t.Context(), client, redisstore.Config{}); !errors.Is(err, admission.ErrUnavailable) {
		t.Errorf("%v", err)
	}
	if _, err := stored(t.Context(), client, redisstore.Config{Prefix: "a{b}"}); !errors.Is(err, admission.ErrInvalid) {
		t.Errorf("%v", err)
	}
}

// TestDoctorLooksAtEveryPartition spoils one thing of the last partition at a time.
func TestDoctorLooksAtEveryPartition(t *testing.T) {
	t.Parallel()
	s, client, config := open(t, 3)
	ctx, last := t.Context(), redisstore.KeysOf(s.Partitions()[2])
	for i := range 30 {
		admit(t, s, fmt.Sprintf("tenant-%d", i), "a", 0)
	}
	for name, text := range map[string]string{"partitions": "3, keys " + config.Prefix + "{*", "jobs": "30 jobs live", "data": "version 3"} {
		if f := look(t, s, name); f.Health != HealthOK || !strings.HasPrefix(f.Text, text) {
			t.Errorf("%+v", f)
		}
	}
	set := func(field string, value int64) func() error {
		return func() error {
			redistest.SetState(t, client, last.State(), field, value)
			return nil
		}
	}
	for _, spoiled := range []struct {
		name, text string
		do         func() error
	}{
		{"dedup", "partition 2: ended ids", set("en", 3_990_000)},
		{"conservation", "partition 2: 1 of ", set("accepted", redisconn.Whole(redistest.State(t, client, last.State())["accepted"])+1)},
		{"conservation", "partition 2: 1 jobs more have a record, or have left, than were accepted", set("accepted", redisconn.Whole(redistest.State(t, client, last.State())["accepted"])-1)},
		{"timers", "partition 2: the first is ", func() error { return client.ZAdd(ctx, last.Due(), redis.Z{Score: 1, Member: "sx"}).Err() }},
		{"policy", "partition 2: version 3 is in force and its text is gone", func() error { return client.HSet(ctx, last.State(), "pv", 3).Err() }},
		{"partitions", `partition 2 is one of "5", the first of "3"`, func() error { return client.HSet(ctx, last.State(), redisconn.LayoutField, 5).Err() }},
		{"partitions", "the deployment is being migrated from 3 to 5 partitions", func() error {
			return client.HSet(ctx, redisstore.Keys(s).State(), redisconn.LayoutField, "3>5").Err()
		}},
	} {
		check(t, spoiled.do())
		if f := look(t, s, spoiled.name); f.Health != HealthFail || !strings.HasPrefix(f.Text, spoiled.text) || f.Do == "" {
			t.Errorf("%s: %+v", spoiled.name, f)
		}
	}
}

// TestDoctorLooksAtEveryMaster of a cluster: each line tells of the worst one, by its address. Run, which the API asks, and Examine,
// which does without Open, say the same.
func TestDoctorLooksAtEveryMaster(t *testing.T) {
	t.Parallel()
	cluster := redistest.StartNodes(t, 3, false)
	client, ctx := cluster.Client(t), t.Context()
	s, err := redisstore.Open(ctx, client, redisstore.Config{Partitions: 6})
	check(t, err)
	for i := range 30 {
		admit(t, s, fmt.Sprintf("tenant-%d", i), "a", 0)
	}
	examine := func(name string) Finding {
		t.Helper()
		asked, err := Run(ctx, s)
		check(t, err)
		r, err := stored(ctx, client, redisstore.Config{})
		check(t, err)
		f := finding(t, r, name)
		if same := finding(t, asked, name); same.Health != f.Health || same.Do != f.Do {
			t.Errorf("Run says %+v, Examine %+v", same, f)
		}
		return f
	}
	for name, text := range map[string]string{"partitions": "6, keys hg{*", "jobs": "30 jobs live", "eviction": "maxmemory-policy noeviction"} {
		if f := examine(name); f.Health != HealthOK || !strings.HasPrefix(f.Text, text) {
			t.Errorf("%+v", f)
		}
	}
	for i, spoiled := range []struct {
		name, parameter, value, text string
	}{
		{"eviction", "maxmemory-policy", "allkeys-lru", "maxmemory-policy allkeys-lru: a full Redis deletes jobs"},
		{"memory", "maxmemory", "1kb", "jobs are refused"},
	} {
		master := cluster.Masters[2-i]
		check(t, master.Client(t).ConfigSet(ctx, spoiled.parameter, spoiled.value).Err())
		f := examine(spoiled.name)
		if f.Health != HealthFail || f.Do == "" || !strings.HasPrefix(f.Text, master.Addr()+": ") || !strings.Contains(f.Text, spoiled.text) {
			t.Errorf("%s of %s: %+v", spoiled.name, master.Addr(), f)
		}
	}
	cluster.Masters[1].Kill(t)
	if _, err := stored(ctx, client, redisstore.Config{}); !errors.Is(err, admission.ErrUnavailable) || !strings.Contains(err.Error(), cluster.Masters[1].Addr()) {
		t.Errorf("with a master killed: %v", err)
	}
}

// TestDoctorWarnsBeforeABoundIsReached: from three quarters on, of the one that is the fullest.
func TestDoctorWarnsBeforeABoundIsReached(t *testing.T) {
	t.Parallel()
	s, client, _ := open(t, 1)
	for _, row := range []struct {
		queues, letters int64
		health          Health
		text            string
	}{
		{3071, 74_999, HealthOK, "74999 of 100000 dead letters are there, the fullest bound"},
		{3072, 74_999, HealthWarn, "3072 of 4096 queues are there: beyond, jobs that would make another are refused"},
		{0, 75_000, HealthWarn, "75000 of 100000 dead letters are there: beyond, one of the tenant that has the most goes for each that comes"},
	} {
		check(t, client.HSet(t.Context(), redisstore.Keys(s).State(), "nq", row.queues, "nd", row.letters).Err())
		r, err := Run(t.Context(), s)
		check(t, err)
		if f := finding(t, r, "bounds"); f.Health != row.health || f.Text != row.text || (f.Do != "") != (f.Health == HealthWarn) {
			t.Errorf("%+v", f)
		}
	}
	names := make([]any, 3100)
	for i := range names {
		names[i] = fmt.Sprint("d", i)
	}
	check(t, client.HDel(t.Context(), redisstore.Keys(s).State(), "nq", "nd").Err())
	check(t, client.SAdd(t.Context(), redisstore.Keys(s).Breakers(), names...).Err())
	r, err := Run(t.Context(), s)
	check(t, err)
	if f := finding(t, r, "bounds"); f.Health != HealthWarn || !strings.HasPrefix(f.Text, "3100 of 4096 breakers are there: beyond, the one that is closed and was quiet for longest") {
		t.Errorf("%+v", f)
	}
}
