package store

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/internal/redisconn"
	"github.com/headgate/headgate/internal/redistest"
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
		"append-only, everysec":      {redistest.Options{AppendFsync: "everysec"}, "persistence", HealthOK, "up to 2 seconds"},
		"append-only, no":            {redistest.Options{AppendFsync: "no"}, "persistence", HealthWarn, "some 30 seconds"},
		"append-only, always":        {redistest.Options{AppendFsync: "always"}, "persistence", HealthOK, "loses no job"},
		"eviction of everything":     {redistest.Options{MaxMemory: "64mb", MaxMemoryPolicy: "allkeys-lru"}, "eviction", HealthFail, "deletes jobs"},
		"eviction of what expires":   {redistest.Options{MaxMemory: "64mb", MaxMemoryPolicy: "volatile-lru"}, "eviction", HealthWarn, "forgets levels of limits"},
		"no maxmemory":               {redistest.Options{}, "memory", HealthWarn, "no maxmemory"},
		"a full one":                 {redistest.Options{MaxMemory: "900kb"}, "memory", HealthFail, "jobs are refused"},
		"a replica":                  {redistest.Options{Args: []string{"--replicaof", "127.0.0.1 1"}}, "replication", HealthFail, "refuses writes"},
		"no CONFIG":                  {redistest.Options{Args: []string{"--rename-command", "CONFIG", ""}}, "persistence", HealthWarn, "does not tell"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r, err := Examine(t.Context(), redistest.Start(t, row.options).Client(t), Config{})
			check(t, err)
			if f := finding(t, r, row.line); f.Health != row.health || !strings.Contains(f.Text, row.text) || (f.Health != HealthOK) != (f.Do != "") {
				t.Errorf("%+v", f)
			}
			if row.health == HealthFail && r.Worst() != HealthFail {
				t.Errorf("worst %s", r.Worst())
			}
		})
	}
}

func TestDoctorLooksAtTheState(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	r, err := y.store.Doctor(t.Context())
	check(t, err)
	for name, text := range map[string]string{
		"version": "Redis ", "clock": "the clock of Redis is ", "partitions": "1, keys ", "jobs": "0 jobs live", "policy": "version 0",
		"dedup": "remembered for 30s, at most 4000000 of them: 66667 jobs/s", "workers": "0 registered", "timers": "none is set", "types": "no job has come",
		"conservation": "each of 0 accepted jobs",
	} {
		if f := finding(t, r, name); f.Health != HealthOK || !strings.Contains(f.Text, text) || f.Do != "" {
			t.Errorf("%+v", f)
		}
	}
	y.store.config.EndedCap = 600
	check(t, y.client.HSet(t.Context(), y.store.partition.State(), "en", 500, "eo", 99, "pv", 7).Err())
	past := mail("acme", "past")
	past.Delay = time.Millisecond
	y.admitAt(7, past, mail("acme", "waits"))
	check(t, y.client.ZAdd(t.Context(), y.store.partition.Later(), redis.Z{Score: 1_700_000_000_000_000, Member: "acme:past"}).Err())
	r, err = y.store.Doctor(t.Context())
	check(t, err)
	for name, text := range map[string]string{"dedup": "10 jobs/s", "policy": "text is gone", "timers": "late: retries"} {
		if f := finding(t, r, name); f.Health != HealthFail || !strings.Contains(f.Text, text) || f.Do == "" {
			t.Errorf("%+v", f)
		}
	}
	if f := finding(t, r, "workers"); f.Health != HealthWarn || !strings.Contains(f.Text, "2 jobs live that are no dead letters") {
		t.Errorf("%+v", f)
	}
	if f := finding(t, r, "jobs"); !strings.Contains(f.Text, "bytes each") {
		t.Errorf("%+v", f)
	}
}

// TestDoctorWarnsOfNoWorkersOnlyWhereSomethingIsToRun: dead letters wait for nobody.
func TestDoctorWarnsOfNoWorkersOnlyWhereSomethingIsToRun(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	y.kill("a")
	for more := true; more; {
		var err error
		more, err = y.store.Reclaim(t.Context(), "w1")
		check(t, err)
	}
	for _, row := range []struct {
		health Health
		text   string
	}{{HealthOK, "0 registered"}, {HealthWarn, "1 jobs live that are no dead letters"}} {
		r, err := y.store.Doctor(t.Context())
		check(t, err)
		if f := finding(t, r, "workers"); f.Health != row.health || !strings.Contains(f.Text, row.text) {
			t.Errorf("%+v", f)
		}
		y.admit(mail("acme", "b"))
	}
}

func TestDoctorNeedsAnAnswer(t *testing.T) {
	t.Parallel()
	client := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1", MaxRetries: -1, DialerRetries: 1})
	defer func() { _ = client.Close() }()
	if _, err := Examine(t.Context(), client, Config{}); !errors.Is(err, admission.ErrUnavailable) {
		t.Errorf("%v", err)
	}
	if _, err := Examine(t.Context(), client, Config{Prefix: "a{b}"}); !errors.Is(err, admission.ErrInvalid) {
		t.Errorf("%v", err)
	}
}

// TestDoctorLooksAtEveryPartition spoils one thing of the last partition at a time.
func TestDoctorLooksAtEveryPartition(t *testing.T) {
	t.Parallel()
	s := openParts(t, 3, 30)
	ctx, last := t.Context(), s.Partitions()[2].partition
	client := connection(s)
	examine := func(name string) Finding {
		r, err := s.Doctor(ctx)
		check(t, err)
		return finding(t, r, name)
	}
	for name, text := range map[string]string{"partitions": "3, keys " + s.config.Prefix + "{*", "jobs": "30 jobs live", "data": "version 1"} {
		if f := examine(name); f.Health != HealthOK || !strings.HasPrefix(f.Text, text) {
			t.Errorf("%+v", f)
		}
	}
	for _, spoiled := range []struct {
		name, text string
		do         func() error
	}{
		{"dedup", "partition 2: ended ids", func() error { return client.HSet(ctx, last.State(), "en", 3_990_000).Err() }},
		{"conservation", "partition 2: 1 of ", func() error { return client.HIncrBy(ctx, last.State(), "accepted", 1).Err() }},
		{"timers", "partition 2: the first is ", func() error { return client.ZAdd(ctx, last.Due(), redis.Z{Score: 1, Member: "sx"}).Err() }},
		{"policy", "partition 2: version 3 is in force and its text is gone", func() error { return client.HSet(ctx, last.State(), "pv", 3).Err() }},
		{"partitions", `partition 2 is one of "5", the first of "3"`, func() error { return client.HSet(ctx, last.State(), redisconn.LayoutField, 5).Err() }},
		{"partitions", "the deployment is being migrated from 3 to 5 partitions", func() error {
			return client.HSet(ctx, s.partition.State(), redisconn.LayoutField, "3>5").Err()
		}},
	} {
		check(t, spoiled.do())
		if f := examine(spoiled.name); f.Health != HealthFail || !strings.HasPrefix(f.Text, spoiled.text) || f.Do == "" {
			t.Errorf("%s: %+v", spoiled.name, f)
		}
	}
}

// TestDoctorLooksAtEveryMaster of a cluster: each line tells of the worst one, by its address. Doctor, which the API asks, and Examine,
// which does without Open, say the same.
func TestDoctorLooksAtEveryMaster(t *testing.T) {
	t.Parallel()
	cluster := redistest.StartNodes(t, 3, false)
	client, ctx := cluster.Client(t), t.Context()
	s, err := Open(ctx, client, Config{Partitions: 6})
	check(t, err)
	for i := range 30 {
		admitOne(t, s, keyOfTenant(i), admission.Limit{})
	}
	examine := func(name string) Finding {
		t.Helper()
		asked, err := s.Doctor(ctx)
		check(t, err)
		r, err := Examine(ctx, client, Config{})
		check(t, err)
		f := finding(t, r, name)
		if same := finding(t, asked, name); same.Health != f.Health || same.Do != f.Do {
			t.Errorf("Doctor says %+v, Examine %+v", same, f)
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
	if _, err := Examine(ctx, client, Config{}); !errors.Is(err, admission.ErrUnavailable) || !strings.Contains(err.Error(), cluster.Masters[1].Addr()) {
		t.Errorf("with a master killed: %v", err)
	}
}

// TestDoctorWarnsBeforeABoundIsReached: from three quarters on, of the one that is the fullest.
func TestDoctorWarnsBeforeABoundIsReached(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	for _, row := range []struct {
		queues, letters int64
		health          Health
		text            string
	}{
		{3071, 74_999, HealthOK, "74999 of 100000 dead letters are there, the fullest bound"},
		{3072, 74_999, HealthWarn, "3072 of 4096 queues are there: beyond, jobs that would make another are refused"},
		{0, 75_000, HealthWarn, "75000 of 100000 dead letters are there: beyond, one of the tenant that has the most goes for each that comes"},
	} {
		check(t, y.client.HSet(t.Context(), y.store.partition.State(), "nq", row.queues, "nd", row.letters).Err())
		r, err := y.store.Doctor(t.Context())
		check(t, err)
		if f := finding(t, r, "bounds"); f.Health != row.health || f.Text != row.text || (f.Do != "") != (f.Health == HealthWarn) {
			t.Errorf("%+v", f)
		}
	}
	names := make([]any, 3100)
	for i := range names {
		names[i] = fmt.Sprint("d", i)
	}
	check(t, y.client.HDel(t.Context(), y.store.partition.State(), "nq", "nd").Err())
	check(t, y.client.SAdd(t.Context(), y.store.partition.Breakers(), names...).Err())
	r, err := y.store.Doctor(t.Context())
	check(t, err)
	if f := finding(t, r, "bounds"); f.Health != HealthWarn || !strings.HasPrefix(f.Text, "3100 of 4096 breakers are there: beyond, the one that is closed and was quiet for longest") {
		t.Errorf("%+v", f)
	}
}
