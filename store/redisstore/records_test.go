package redisstore

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/internal/redisconn"
	"github.com/headgate/headgate/internal/redistest"
	"github.com/headgate/headgate/policy"
	"github.com/headgate/headgate/store"
)

// ownedYard asks for tokens of tenants that have a limit of their own, or 20 and one a day.
type ownedYard struct {
	*testing.T

	store   *Partition
	limits  map[string]admission.Limit
	version map[string]int64
}

func newOwnedYard(t *testing.T) *ownedYard {
	t.Helper()
	return newOwnedYardOn(t, newYard(t).store)
}

func newOwnedYardOn(t *testing.T, s *Partition) *ownedYard {
	t.Helper()
	s.SetTime(timeAt(t, "2027-01-01T12:00:00Z"))
	return &ownedYard{t, s, map[string]admission.Limit{}, map[string]int64{}}
}

func (y *ownedYard) question(tenant string, cost admission.Tokens) store.Question {
	q := ofTenant(tenant, cost)
	q.Limits[admission.LevelTenant], q.Record = admission.Limit{Tokens: 1, Per: 24 * time.Hour, Burst: 20}, policy.NoRecord
	if limit, own := y.limits[tenant]; own {
		q.Limits[admission.LevelTenant], q.Record = limit, y.version[tenant]
	}
	return q
}

func (y *ownedYard) ask(questions ...store.Question) ([]store.Answer, error) {
	_, answers, err := y.store.Check(y.Context(), 0, false, questions)
	return answers, err
}

// put gives a tenant a record, none for a limit without tokens.
func (y *ownedYard) put(tenant string, limit admission.Limit, expected int64) error {
	e := store.RecordEdit{Tenant: tenant, Expected: expected, LongestFill: 24 * time.Hour, Changes: []byte("[]"), By: store.Intervention{Author: "ada", Reason: "contract"}}
	if limit.Tokens > 0 {
		e.Text = fmt.Appendf(nil, `{"limit":{"tokens":%d}}`, limit.Tokens)
	}
	version, err := y.store.PutRecord(y.Context(), e)
	if err != nil {
		return err
	}
	if y.limits[tenant], y.version[tenant] = limit, version; limit.Tokens == 0 {
		delete(y.limits, tenant)
		if version != policy.NoRecord {
			y.Errorf("a record that is gone has version %d", version)
		}
	}
	return nil
}

func (y *ownedYard) wantLeft(tenant string, want admission.Tokens) {
	y.Helper()
	_, answers, err := y.store.Check(y.Context(), 0, true, []store.Question{y.question(tenant, 1)})
	check(y, err)
	if left := answers[0].Left[admission.LevelTenant].Tokens(); left != want {
		y.Errorf("%s has %d tokens left, want %d", tenant, left, want)
	}
}

// TestACallByAnotherRecordIsTold which records its tenants have, and charges nobody.
func TestACallByAnotherRecordIsTold(t *testing.T) {
	t.Parallel()
	y := newOwnedYard(t)
	hundred := admission.Limit{Tokens: 100, Per: 24 * time.Hour, Burst: 100}
	stranger, other := y.question("acme", 5), y.question("zeta", 5)
	check(t, y.put("acme", hundred, policy.NoRecord))
	_, err := y.ask(other, stranger)
	told, ok := errors.AsType[*store.StaleRecordsError](err)
	want := store.TenantRecord{Tenant: "acme", Version: y.version["acme"], Text: []byte(`{"limit":{"tokens":100}}`)}
	if !ok || !errors.Is(err, store.ErrStale) || len(told.Records) != 1 || fmt.Sprint(told.Records[0]) != fmt.Sprint(want) {
		t.Fatalf("%v, want it to tell of %v", err, want)
	}
	y.wantLeft("zeta", 20)
	y.wantLeft("acme", 100)
	_, err = y.ask(y.question("acme", 60), other)
	check(t, err)
	y.wantLeft("acme", 40)
	y.wantLeft("zeta", 15)
	known := y.question("acme", 1)
	check(t, y.put("acme", admission.Limit{}, known.Record))
	if _, err = y.ask(known); !errors.As(err, &told) || told.Records[0].Version != policy.NoRecord || len(told.Records[0].Text) > 0 {
		t.Errorf("a record that is gone: %v", err)
	}
	without := y.question("acme", 1)
	without.Record = 0 // A policy that has none is in force as it is.
	if _, err = y.ask(without); err != nil {
		t.Error(err)
	}
}

// TestTokensOutliveAChangeOfARecord: what was taken stays so, and time before the change counts by the slower of both rates.
func TestTokensOutliveAChangeOfARecord(t *testing.T) {
	t.Parallel()
	y := newOwnedYard(t)
	_, err := y.ask(y.question("acme", 20))
	check(t, err)
	fast := admission.Limit{Tokens: 10, Per: time.Second, Burst: 100}
	y.store.SetTime(timeAt(t, "2027-01-01T12:00:05Z"))
	check(t, y.put("acme", fast, 0))
	y.wantLeft("acme", 0)
	y.store.SetTime(timeAt(t, "2027-01-01T12:00:07Z"))
	y.wantLeft("acme", 20)
	check(t, y.put("acme", admission.Limit{}, 0))
	y.wantLeft("acme", 0) // Seven seconds at a token a day: nobody knows when the bucket was last written but by that.
	left := func() time.Duration {
		left, err := y.store.BucketsTTL(t.Context(), "zeta")
		check(t, err)
		return left
	}
	check(t, y.put("zeta", fast, 0))
	_, err = y.ask(y.question("zeta", 100))
	check(t, err)
	before := left()
	check(t, y.put("zeta", admission.Limit{}, 0))
	if more := left() - before; more < 24*time.Hour {
		t.Errorf("buckets that were full in ten seconds and fill in a day now are kept for %s more", more)
	}
}

// TestTokensOfATypeOutliveAChangeOfARecord as those of its tenant do (law L1): what was taken stays so, time before the change counts by the slower of both rates,
// and what came in after it by the new one.
func TestTokensOfATypeOutliveAChangeOfARecord(t *testing.T) {
	t.Parallel()
	y := newOwnedYard(t)
	slow, fast := admission.Limit{Tokens: 1, Per: 24 * time.Hour, Burst: 100}, admission.PerSecond(10).WithBurst(100)
	question := func(limit admission.Limit, cost admission.Tokens) store.Question {
		q := y.question("acme", cost)
		q.Limits[admission.LevelTenant], q.Queue = admission.Limit{Disabled: true}, "mail"
		q.Class, q.TypeLimit = admission.Medium, &store.TypeLimit{Type: "report", Limit: &limit}
		return q
	}
	wantLeft := func(limit admission.Limit, want admission.Tokens) {
		t.Helper()
		q := question(limit, 1)
		q.Class, q.Limits[admission.LevelPriority], q.TypeLimit = admission.OfType("report"), limit, nil
		_, answers, err := y.store.Check(t.Context(), 0, true, []store.Question{q})
		check(t, err)
		if left := answers[0].Left[admission.LevelPriority].Tokens(); left != want {
			t.Errorf("%d tokens are left, want %d", left, want)
		}
	}
	_, err := y.ask(question(slow, 100))
	check(t, err)
	y.store.SetTime(timeAt(t, "2027-01-01T12:00:05Z"))
	check(t, y.put("acme", fast, 0))
	wantLeft(fast, 0)
	y.store.SetTime(timeAt(t, "2027-01-01T12:00:07Z"))
	wantLeft(fast, 20)
	if answers, err := y.ask(question(fast, 21)); err != nil || answers[0].Verdict.Scope != "acme:mail:type=report" {
		t.Errorf("21 of 20: %+v, %v", answers, err)
	}
	_, err = y.ask(question(fast, 15))
	check(t, err)
	y.store.SetTime(timeAt(t, "2027-01-01T12:00:09Z"))
	check(t, y.put("acme", slow, 0))
	wantLeft(slow, 5) // Two seconds at 10 a second, and the lowered rate counts for them.
}

// TestEditsOfARecord: an edit names the version that it was made from, the same again is none, and the audit has each.
func TestEditsOfARecord(t *testing.T) {
	t.Parallel()
	y := newOwnedYard(t)
	ten, twenty := admission.Limit{Tokens: 10, Per: time.Second, Burst: 10}, admission.Limit{Tokens: 20, Per: time.Second, Burst: 20}
	check(t, y.put("acme", ten, policy.NoRecord))
	first := y.version["acme"]
	if err := y.put("acme", twenty, policy.NoRecord); !errors.Is(err, store.ErrConflict) {
		t.Errorf("an edit from no record: %v", err)
	}
	check(t, y.put("acme", ten, first))
	if y.version["acme"] != first {
		t.Error("the same record again is another version")
	}
	check(t, y.put("acme", twenty, first))
	if err := y.put("acme", ten, first); !errors.Is(err, store.ErrConflict) {
		t.Errorf("an edit from the version before: %v", err)
	}
	check(t, y.put("acme", admission.Limit{}, 0))
	check(t, y.put("acme", ten, 0))
	if y.version["acme"] <= first {
		t.Errorf("version %d follows %d: whoever knows that one would take this for it", y.version["acme"], first)
	}
	if _, err := y.store.PutRecord(t.Context(), store.RecordEdit{Tenant: "acme", Policy: 3}); !errors.Is(err, store.ErrStale) {
		t.Errorf("an edit beside another policy: %v", err)
	}
	page, err := y.store.Audit(t.Context(), store.AuditQuery{Name: "t:acme"})
	check(t, err)
	var actions []string
	for _, e := range page.Entries {
		actions = append(actions, e.Action)
		if e.Author != "ada" || e.Reason != "contract" || string(e.Changes) != "[]" || e.From == e.To {
			t.Errorf("%+v", e)
		}
	}
	if want := []string{"tenant_record", "tenant_record_gone", "tenant_record", "tenant_record"}; !slices.Equal(actions, want) {
		t.Errorf("the audit has %v, want %v", actions, want)
	}
}

// TestRecordsByThePage are all there, by a prefix or not, and an edit among many asks Redis for no more than one among few.
func TestRecordsByThePage(t *testing.T) {
	t.Parallel()
	y := newOwnedYardOn(t, newYardOn(t, redistest.Start(t, redistest.Options{}).Client(t), "").store)
	tokens := admission.Tokens(0)
	commands := func() int64 { // The least of some: others are those of a connection that is new.
		least := int64(1000)
		for range 5 {
			before := commandsOf(t, y.store)
			tokens++
			check(t, y.put("middle", admission.Limit{Tokens: tokens, Per: time.Second, Burst: 1}, 0))
			least = min(least, commandsOf(t, y.store)-before)
		}
		return least
	}
	few := commands()
	fields := make([]any, 0, 20_000)
	for i := range 10_000 {
		fields = append(fields, fmt.Sprintf("t-%d", i), "\x00\x00\x00\x00\x00\x00\x05{}")
	}
	check(t, redisconn.Client(y.store.Conn()).HSet(t.Context(), y.store.Conn().Partition.Records(), fields...).Err())
	if many := commands(); many != few {
		t.Errorf("an edit of one of 10,001 takes %d commands, of one of 2 %d", many, few)
	}
	for prefix, want := range map[string]int{"": 10_001, "t-99": 111, "nobody": 0} {
		found, pages := map[string]bool{}, 0
		for q := (store.RecordsQuery{Prefix: prefix, Limit: 100}); ; pages++ {
			page, err := y.store.RecordsPage(t.Context(), q)
			check(t, err)
			for _, r := range page.Records {
				found[r.Tenant] = true
			}
			if len(page.Records) > 100+scanMost {
				t.Errorf("a page of 100 has %d", len(page.Records))
			}
			if q.Cursor = page.Next; q.Cursor == "" {
				break
			}
		}
		if len(found) != want {
			t.Errorf("prefix %q: %d records on %d pages, want %d", prefix, len(found), pages, want)
		}
	}
	if n, err := y.store.CountRecords(t.Context()); n != 10_001 || err != nil {
		t.Errorf("%d records, %v", n, err)
	}
	for _, bad := range []store.RecordsQuery{{Limit: 1001}, {Limit: -1}, {Cursor: "x"}, {Cursor: "0"}} {
		if _, err := y.store.RecordsPage(t.Context(), bad); !errors.Is(err, admission.ErrInvalid) {
			t.Errorf("%+v: %v", bad, err)
		}
	}
}

// scanMost is how many records a call of HSCAN may bring, a little more than it is asked for.
const scanMost = 512

// commandsOf returns how many commands Redis has done.
func commandsOf(t *testing.T, s *Partition) int64 {
	t.Helper()
	info, err := redisconn.Client(s.Conn()).InfoMap(t.Context(), "stats").Result()
	check(t, err)
	return redisconn.Whole(info["Stats"]["total_commands_processed"])
}
