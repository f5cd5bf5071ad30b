package limiter

import (
	"fmt"
	"strconv"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/internal/keyspace"
	"github.com/headgate/headgate/internal/redistest"
	"github.com/headgate/headgate/policy"
	"github.com/headgate/headgate/store"
)

// withRecords is a policy of one limit of each tenant that has no record of another.
func withRecords(limit admission.Limit) *policy.Policy {
	p := eachTenant(1, limit)
	p.TenantRecords = true
	return p
}

// shut is the record of a tenant that may do nothing that costs more than a token, and open of one that may do as others.
const (
	shutRecord = `{"limit":{"tokens":1,"per":"24h","burst":1}}`
	openRecord = `{"limit":{"tokens":100000,"per":"1s"}}`
)

func editRecord(tb testing.TB, s store.Deployment, tenant, text string) {
	tb.Helper()
	_, err := s.PutRecord(tb.Context(), store.RecordEdit{Tenant: tenant, Policy: 1, Text: []byte(text), LongestFill: 24 * time.Hour})
	check(tb, err)
}

// TestEditsEndWhatTheirTenantsHold and of nobody else, as long as Redis can name them: then a limiter goes on with what it holds, however often others are
// edited.
func TestEditsEndWhatTheirTenantsHold(t *testing.T) {
	t.Parallel()
	for _, on := range []string{"redis", "memory"} {
		t.Run(on, func(t *testing.T) {
			t.Parallel()
			v := newVirtual()
			endsByName(t, v, stores(t, v)[on](redistest.Prefix(t)))
		})
	}
}

func endsByName(t *testing.T, v *virtual, d store.Deployment) {
	t.Helper()
	put(t, d, withRecords(admission.PerSecond(1000)))
	l := newStocked(t, v, d)
	edits := 0
	many := func(n int) func() {
		return func() {
			for i := range n {
				edits++
				editRecord(t, d, "other-"+strconv.Itoa(i), fmt.Sprintf(`{"limit":{"tokens":%d,"per":"1s"}}`, edits))
			}
		}
	}
	source := func(what string, want Source) {
		t.Helper()
		if v := l.check("seldom"); v.Source != want || !v.Admitted {
			t.Errorf("%s: %+v, want it %v", what, v, want)
		}
	}
	l.have("seldom")
	source("at first", Leased)
	for range 10 {
		many(20)()
		l.pass(heardLife / 2)
		source("beside edits of others", Leased)
	}
	many(store.EditsKept)()
	l.pass(heardLife / 2)
	source("beside as many as are named", Leased)
	for name, all := range map[string]func(){
		"more edits than are kept": many(store.EditsKept + 1),
		"edits that are lost": func() {
			many(1)()
			if part, ok := d.Partitions()[0].(interface{ Keys() keyspace.Partition }); ok {
				check(t, redistest.Shared(t).Client(t).Del(t.Context(), part.Keys().Base()+"edits").Err())
				many(2)()
			} else {
				many(2 * store.EditsKept)()
			}
		},
		"the tenant's own": func() { editRecord(t, d, "seldom", openRecord) },
	} {
		all()
		l.pass(heardLife / 2)
		source("after "+name, Exact)
		l.pass(5 * time.Second)
		source("later, after "+name, Leased)
	}
	editRecord(t, d, "seldom", shutRecord)
	l.pass(heardLife)
	if v := l.ask("seldom", 2); v.Admitted {
		t.Errorf("a second after its record was shut: %+v", v)
	}
}

// ask is check of a cost.
func (s *stocked) ask(tenant string, cost admission.Tokens) Verdict {
	s.t.Helper()
	v := ask(s.t, s.Limiter, Request{Tenant: tenant, Cost: cost})
	s.line.flying.Wait()
	return v
}

// TestWhatComesBesideAnEditEnds: of calls that were under way as records were edited nothing is held, of the one that was told of them all is.
func TestWhatComesBesideAnEditEnds(t *testing.T) {
	t.Parallel()
	v := newVirtual()
	d := open(t, v.client(t))
	put(t, d, withRecords(admission.PerSecond(1000)))
	l := newStocked(t, v, d)
	l.pass(2 * beatEvery)
	l.check("acme")
	s, now := l.ways.find(&Request{Tenant: "acme"}).scopes[0], l.clock.now()
	told, other := &flight{cuts: l.cuts.Load(), sent: now}, l.cuts.Load()
	l.hear(told, &store.Granted{Members: 1, Changed: l.changed.Load(), Edited: l.edited.Load() + 1, Renewed: []string{"zeta"}})
	for cuts, want := range map[uint64]bool{told.cuts: true, other: false} {
		s.cut(now, false)
		s.lease(now, store.Leased{Tokens: 5}, true)
		if l.stocked(s, now, cuts); s.has(now, 1) != want {
			t.Errorf("a stock of %d cuts of %d is held: %t", cuts, l.cuts.Load(), !want)
		}
	}
}

// TestNobodyIsJudgedByAnOldRecord: whatever records are edited and whoever is asked for, an answer is by a record that was in force less than a second ago; on one
// Redis, on three partitions and in memory.
func TestNobodyIsJudgedByAnOldRecord(t *testing.T) {
	t.Parallel()
	prefix := redistest.Prefix(t)
	for on := range stores(t, newVirtual()) {
		t.Run(on, func(t *testing.T) {
			t.Parallel()
			v := newVirtual()
			openOne, runs, leased := stores(t, v)[on], 0, uint64(0)
			rapid.Check(t, func(rt *rapid.T) {
				runs++
				defer redistest.Clear(t, prefix+on[:1]+strconv.Itoa(runs))
				leased += judged(t, rt, v, openOne(prefix+on[:1]+strconv.Itoa(runs)))
			})
			if leased == 0 {
				t.Error("nothing was answered by lease")
			}
		})
	}
}

// judged is a walk of edits and checks. It returns how many of these were answered by lease.
func judged(t *testing.T, rt *rapid.T, v *virtual, s store.Deployment) (leased uint64) {
	t.Helper()
	p := withRecords(rapid.SampledFrom([]admission.Limit{admission.PerSecond(100_000), none}).Draw(rt, "limit"))
	p.Global = rapid.SampledFrom([]admission.Limit{none, admission.PerSecond(1_000_000)}).Draw(rt, "global limit")
	if p.Dimensions = nil; rapid.Bool().Draw(rt, "dimension") {
		p.Dimensions = map[string]policy.DimensionRules{"user": {Limit: admission.PerSecond(100_000)}}
	}
	put(t, s, p)
	l := start(t, s, Config{Timeout: patient})
	for _, part := range units(l) {
		part.clock.set = &v.process
	}
	type state struct {
		since int64 // by the process
		open  bool
	}
	var history [4][]state
	for range rapid.IntRange(1, 60).Draw(rt, "operations") {
		v.pass(time.Duration(rapid.SampledFrom([]int{0, 1, 100, 300, 499, 700, 1000}).Draw(rt, "ms")) * time.Millisecond)
		i, now := rapid.IntRange(0, len(history)-1).Draw(rt, "tenant"), v.process.Load()
		tenant := fmt.Sprint("t", i)
		if rapid.IntRange(0, 2).Draw(rt, "edit") == 0 {
			text := rapid.SampledFrom([]string{shutRecord, openRecord, ""}).Draw(rt, "record")
			editRecord(t, s, tenant, text)
			history[i] = append(history[i], state{now, text != shutRecord})
			continue
		}
		may := map[bool]bool{}
		if len(history[i]) == 0 || now-history[i][0].since < int64(heardLife) {
			may[true] = true
		}
		for n, one := range history[i] {
			if n == len(history[i])-1 || now-history[i][n+1].since < int64(heardLife) {
				may[one.open] = true
			}
		}
		asked := Request{Tenant: tenant, Cost: 2}
		if p.Dimensions != nil && rapid.Bool().Draw(rt, "of a user") {
			asked.Also = also("user", "1")
		}
		got := ask(t, l, asked)
		if !may[got.Admitted] {
			rt.Fatalf("%s at %d: %+v, its records were %+v", tenant, now, got, history[i])
		}
		if got.Source == Leased {
			leased++
		}
	}
	check(t, l.Close(t.Context()))
	return leased
}
