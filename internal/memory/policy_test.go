package memory_test

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/fairqueue"
	"github.com/headgate/headgate/store"
)

// put stores a policy after the version in force.
func (p *pair) put(u store.PolicyUpdate) reply {
	p.tb.Helper()
	return p.putAs(u, p.version, p.version+1)
}

func (p *pair) putAs(u store.PolicyUpdate, expected, version int64) reply {
	p.tb.Helper()
	u.Expected, u.Version = expected, version
	if u.Text == nil {
		u.Text = fmt.Appendf(nil, "{%q:%d}", "version", version)
	}
	if u.Window == 0 {
		u.Window = time.Minute
	}
	asked := p.same("check policy", func(s store.Partition) any { return replied(s.CheckPolicy(p.ctx, u)) }).(reply)
	done := p.same("policy", func(s store.Partition) any { return replied(s.PutPolicy(p.ctx, u)) }).(reply)
	if done.Err == "" {
		p.version = version
	} else if asked.Err != done.Err {
		p.tb.Errorf("checked %q, put %q", asked.Err, done.Err)
	}
	return done
}

// audited reads the whole audit in pages of a query, compares them, and returns all entries.
func (p *pair) audited(q store.AuditQuery) (entries []store.AuditEntry) {
	p.tb.Helper()
	cursors := map[store.Partition]string{}
	for n := 0; ; n++ {
		page := p.same(fmt.Sprintf("page %d of the audit", n), func(s store.Partition) any {
			q.Cursor = cursors[s]
			page, err := s.Audit(p.ctx, q)
			cursors[s] = page.Cursor
			if page.Cursor != "" {
				page.Cursor = "on"
			}
			return replied(page, err)
		}).(reply).Values[0].(store.AuditPage)
		entries = append(entries, page.Entries...)
		if page.Cursor == "" {
			return entries
		}
	}
}

// told compares all that is told of policies.
func (p *pair) told() {
	p.tb.Helper()
	p.same("text", func(s store.Partition) any { return replied(s.Policy(p.ctx)) })
	p.same("in force", func(s store.Partition) any { return replied(s.PolicyInForce(p.ctx)) })
	versions := p.same("versions", func(s store.Partition) any { return replied(s.PolicyVersions(p.ctx)) }).(reply)
	for _, v := range versions.Values[0].([]store.AuditEntry) {
		p.same("a version", func(s store.Partition) any { return replied(s.PolicyVersion(p.ctx, v.To)) })
	}
	p.same("no version", func(s store.Partition) any { return replied(s.PolicyVersion(p.ctx, 1<<40)) })
	p.audited(store.AuditQuery{})
}

func TestPoliciesAreKeptAndTold(t *testing.T) {
	t.Parallel()
	p := newPair(t)
	p.told()
	u := store.PolicyUpdate{Text: []byte(`{"a":1}`), Edit: "first", Author: "ada", Reason: "to begin", Changes: []byte(`["all"]`)}
	p.put(u)
	p.told()
	p.move(time.Second)
	p.putAs(u, 0, 1) // It is sent again.
	u.Edit = "another"
	if r := p.putAs(u, 0, 1); !strings.Contains(r.Err, "conflict") {
		t.Errorf("%+v", r)
	}
	p.putAs(u, 7, 8)
	p.told()
	for _, bad := range []store.PolicyUpdate{{Author: "a\nb"}, {Edit: store.OnlyAsk}, {Reason: strings.Repeat("x", store.MaxReason+1)}} {
		p.putAs(bad, p.version, p.version+1)
	}
	for i := range 101 {
		p.put(store.PolicyUpdate{Text: fmt.Appendf(nil, "%d", i), Edit: fmt.Sprint("e", i), Restored: int64(i % 3)})
	}
	p.told()
	if n := len(p.audited(store.AuditQuery{Limit: 7})); n != 102 {
		t.Errorf("%d entries", n)
	}
	p.same("spread", func(s store.Partition) any { return replied(s.SpreadPolicy(p.ctx)) })
}

// TestTheBytesOfVersionsAreBounded: of old versions, and of those before the newest, 64 MiB are kept.
func TestTheBytesOfVersionsAreBounded(t *testing.T) {
	t.Parallel()
	p := newPair(t)
	for range 4 {
		p.put(store.PolicyUpdate{Text: make([]byte, 30<<20)})
	}
	p.told()
}

func TestAuditsAreRead(t *testing.T) {
	t.Parallel()
	p := newPair(t)
	for i := range 2100 {
		by := store.Intervention{Author: []string{"ada", "bea"}[i%2], Reason: strconv.Itoa(i)}
		p.each(func(s store.Partition) error {
			return s.Suspend(p.ctx, store.TenantGate(fmt.Sprint("t", i%5)), time.Duration(i)*time.Millisecond, by)
		})
		if i == 1999 || i == 199 { // As many as a call looks at, and as a portion has.
			p.audited(store.AuditQuery{Action: store.AuditCancel})
			p.audited(store.AuditQuery{Limit: 200})
		}
	}
	p.put(store.PolicyUpdate{})
	queries := []store.AuditQuery{{}, {Limit: 200}, {Limit: store.MaxPage}, {Action: store.AuditPolicy}, {Author: "ada", Limit: 13}, {Name: "t:t3"}, {Action: store.AuditCancel}}
	for _, q := range append(queries, store.AuditQuery{Limit: -1}, store.AuditQuery{Action: "what"}, store.AuditQuery{Limit: store.MaxPage + 1}) {
		if p.audited(q); q.Limit == 200 && len(p.audited(q)) != 2101 {
			t.Error("not all entries")
		}
	}
	for _, cursor := range []string{"-", "x", "0-0", "1-1", "1-0,2-0", "-1-0", "9999999999999999-0"} {
		p.same("audit from "+cursor, func(s store.Partition) any {
			page, err := s.Audit(p.ctx, store.AuditQuery{Cursor: cursor})
			page.Cursor = ""
			return replied(page, err)
		})
	}
}

// TestTheAuditIsBounded: of more entries than are kept the oldest go, and are counted.
func TestTheAuditIsBounded(t *testing.T) {
	t.Parallel()
	p := newPair(t)
	for i := range 10_003 {
		by := store.Intervention{Reason: strconv.Itoa(i), Author: "ada"}
		check(t, p.memory.Suspend(p.ctx, store.TenantGate("acme"), time.Hour, by))
	}
	page, err := p.memory.Audit(p.ctx, store.AuditQuery{Limit: 1})
	check(t, err)
	if page.Gone != 3 || page.Entries[0].Reason != "10002" {
		t.Errorf("%+v", page)
	}
}

// TestOneActIsOneEntry: calls with one act are one entry of the audit, while it is young and nothing much stands between.
func TestOneActIsOneEntry(t *testing.T) {
	t.Parallel()
	p := newPair(t)
	dead := func(ids ...string) (keys []admission.Key) {
		for _, id := range ids {
			p.register("w1", mailPool, 3)
			p.admit(mail("acme", id))
			p.finish("w1", mailPool, p.take("w1", mailPool, 1), store.Finish{Outcome: store.Kill, Reason: "failed"})
			keys = append(keys, key(id))
		}
		return keys
	}
	keys := dead("a", "b", "c", "d", "e", "f")
	purge := func(by store.Intervention, keys ...admission.Key) {
		p.same("purge", func(s store.Partition) any { return replied(s.Purge(p.ctx, keys, by)) })
	}
	by := store.Intervention{Author: "ada", Reason: "old", Act: "act 1"}
	purge(by, keys[0])
	p.move(599 * time.Second)
	purge(by, keys[1], keys[1])
	p.move(600 * time.Second)
	purge(by, keys[2])
	p.suspend(store.QueueGate("mail"), time.Second)
	purge(by, keys[3])
	by.Author = "bea"
	purge(by, keys[4])
	for i := range 8 {
		p.suspend(store.TenantGate(fmt.Sprint("t", i)), 0)
	}
	purge(by, keys[5])
	by.Own = true
	p.same("clear", func(s store.Partition) any { return replied(s.ClearTenant(p.ctx, "acme", "mail", by)) })
	n := 0
	for _, e := range p.audited(store.AuditQuery{Action: store.AuditPurge}) {
		n += int(e.Jobs)
	}
	if all := p.audited(store.AuditQuery{Action: store.AuditPurge}); len(all) != 4 || n != 6 {
		t.Errorf("%d entries of %d jobs: %+v", len(all), n, all)
	}
}

// TestEveryActIsTold does what the audit tells of.
func TestEveryActIsTold(t *testing.T) {
	t.Parallel()
	p := newPair(t)
	by := store.Intervention{Author: "ada", Reason: "why not"}
	everywhere(p)
	cancel := func(id string, by store.Intervention) {
		p.same("cancel "+id, func(s store.Partition) any {
			running, more, err := s.Cancel(p.ctx, key(id), by)
			return replied(running, more, err)
		})
	}
	cancel("running", by)
	cancel("a", by)
	cancel("a", by)
	cancel("dated", store.Intervention{})
	cancel("killed", by)
	cancel("nobody", by)
	p.pause(store.QueueGate("mail"), time.Hour, by)
	p.pause(store.TenantGate("acme"), 1500*time.Nanosecond, by)
	p.unpause(store.QueueGate("mail"), true)
	p.unpause(store.QueueGate("mail"), false)
	p.suspend(store.QueueGate("mail"), time.Minute)
	p.resume(store.QueueGate("mail"), true)
	p.drain(time.Minute, by)
	p.drain(time.Second, by)
	p.resume(store.QueueGate("mail"), true)
	for _, g := range []store.Gate{{Name: store.TenantGate("acme"), Limit: 3}, {Name: store.DownstreamGate("smtp"), For: time.Minute, Then: 2}, {Name: store.TenantGate("acme"), Limit: store.Unlimited}} {
		g.By = by
		p.same("gate", func(s store.Partition) any {
			held, more, err := s.SetGate(p.ctx, g)
			return replied(held, more, err)
		})
	}
	redrive := func(free bool) {
		p.same("redrive", func(s store.Partition) any {
			letters, err := s.Letters(p.ctx, []admission.Key{key("killed")})
			check(p.tb, err)
			again := candidates(nil, mail("acme", "killed"))
			again[0].Redrive, again[0].By, again[0].Free = letters[0].Record.Seq, by, free
			verdicts, err := s.Admit(p.ctx, 0, again)
			return replied(verdicts, err)
		})
	}
	redrive(false)
	p.same("clear", func(s store.Partition) any { return replied(s.ClearTenant(p.ctx, "acme", "mail", by)) })
	p.same("clear again", func(s store.Partition) any { return replied(s.ClearTenant(p.ctx, "acme", "mail", by)) })
	actions := map[string]bool{}
	for _, e := range p.audited(store.AuditQuery{}) {
		actions[e.Action] = true
	}
	for _, want := range []string{
		store.AuditCancel, store.AuditPause, store.AuditUnpause, store.AuditSuspend, store.AuditResume, store.AuditDrain, store.AuditGate,
		store.AuditRedrive, store.AuditClear,
	} {
		if !actions[want] {
			t.Errorf("nothing is told of a %s", want)
		}
	}
}

func TestAReaderHearsOfAPolicy(t *testing.T) {
	t.Parallel()
	p := newPair(t)
	r := p.memory.NewPolicyReader()
	ended, cancel := context.WithCancel(p.ctx)
	cancel()
	if known, err := r.Next(ended, 3); known != 3 || err != nil {
		t.Errorf("%d, %v", known, err)
	}
	if known, err := r.Next(p.ctx, 3); known != 0 || err != nil {
		t.Errorf("%d, %v", known, err)
	}
	heard := make(chan int64)
	ctx, cancel := context.WithCancel(p.ctx)
	go func() {
		known := int64(0)
		for range 2 { // The second time it is ctx that ends it.
			known, _ = r.Next(ctx, known)
			heard <- known
		}
	}()
	p.put(store.PolicyUpdate{})
	if version := <-heard; version != 1 {
		t.Errorf("heard of %d", version)
	}
	check(t, p.memory.Suspend(ctx, store.QueueGate("mail"), 0, store.Intervention{})) // It is no policy.
	cancel()
	if version := <-heard; version != 1 {
		t.Errorf("heard of %d", version)
	}
	check(t, r.Close())
}

// TestClassesComeAndGo: a class in which jobs wait stays where it is; weights change, and the phase of the pattern stays.
func TestClassesComeAndGo(t *testing.T) {
	t.Parallel()
	p := newPair(t)
	classes := func(text string) (all []admission.Class) {
		for i, name := range strings.Fields(text) {
			all = append(all, admission.Class{Name: admission.Priority(name), Weight: 1 + (i*7+len(text))%5})
		}
		return all
	}
	edit := func(text string, ok bool) {
		t.Helper()
		u := store.PolicyUpdate{}
		if text != "" {
			u.Queues = []store.QueueSettings{{Queue: "mail", Classes: classes(text), Horizon: time.Hour}}
		}
		if r := p.put(u); (r.Err == "") != ok {
			t.Errorf("%s: %+v", text, r)
		}
		p.same("queues", func(s store.Partition) any { return replied(s.Queues(p.ctx)) })
	}
	n := 0
	admit := func(class int) {
		t.Helper()
		n++
		c := candidates(nil, mail(fmt.Sprint("t", n%3), fmt.Sprint("j", n)))
		c[0].Class = class
		p.same("admit", func(s store.Partition) any { return replied(s.Admit(p.ctx, p.version, c)) })
	}
	run := func(n int) {
		t.Helper()
		for range n {
			p.finish("w1", mailPool, p.take("w1", mailPool, 1), store.Finish{Outcome: store.Complete})
		}
	}
	edit("one two", true)
	for i := range 40 {
		admit(i % 2)
	}
	p.register("w1", mailPool, 1)
	run(7)
	edit("one two three", true)
	admit(2)
	edit("one", false)
	edit("", false)
	edit("two one three", false)
	run(9)
	edit("one two three four", true)
	run(24)
	edit("one", true)
	admit(0)
	admit(0)
	admit(0)
	run(1)
	edit("one", true)
	edit("uno", false)
	run(3)
	edit("uno", true)
	edit("", true)
	admit(2)
	admit(0)
	run(2)
}

// TestAnEditEndsOldLetters: the timers end those that are too old by what it says.
func TestAnEditEndsOldLetters(t *testing.T) {
	t.Parallel()
	p := newPair(t)
	p.register("w1", mailPool, 1)
	for i := range 9 {
		p.admit(mail("acme", fmt.Sprint("j", i)))
		p.finish("w1", mailPool, p.take("w1", mailPool, 1), store.Finish{Outcome: store.Kill, Reason: "failed"})
		p.move(100 * time.Millisecond)
	}
	for _, row := range []struct {
		keep time.Duration
		left int
	}{{0, 9}, {time.Hour, 9}, {450 * time.Millisecond, 4}, {0, 4}} {
		p.put(store.PolicyUpdate{Queues: []store.QueueSettings{{
			Queue: "mail", Classes: admission.DefaultClasses(), Horizon: time.Hour, KeepDead: row.keep,
		}}})
		p.same("promote", func(s store.Partition) any {
			done, err := s.PromoteAfter(p.ctx, store.LeapSilence, "s1", time.Second)
			return replied(done.More, done.Moved, done.Next, err)
		})
		if dead := len(p.list(store.ListQuery{Place: store.PlaceDead})); dead != row.left {
			t.Errorf("%d letters by %+v", dead, row)
		}
	}
}

// TestAnEditWakesBehindWhatItWrites: after a call that ran out of moves an edit goes on with what waits behind the gates that it writes, as
// far as it knows what these are, and leaves the rest to the timers of that call.
func TestAnEditWakesBehindWhatItWrites(t *testing.T) {
	t.Parallel()
	const parked = 6 // waiters that the moves did not suffice for
	queue := func(limit int) store.Cap { return store.Cap{Gate: store.QueueGate("mail"), Limit: limit} }
	every := func(limit int) store.Cap { return store.Cap{Gate: store.DownstreamGate(store.Every), Limit: limit} }
	other := store.Cap{Gate: store.DownstreamGate("db"), Limit: 200}
	rate := store.Cap{Gate: store.DownstreamRateGate("api"), Rate: admission.PerSecond(200)}
	for name, row := range map[string]struct {
		before, after []store.Cap
		ran           int // with what waited for moves, and then for a gate
	}{
		"no caps":            {},
		"the same cap":       {before: []store.Cap{queue(200)}, after: []store.Cap{queue(200)}},
		"the same rate":      {before: []store.Cap{rate}, after: []store.Cap{rate}},
		"the same default":   {before: []store.Cap{every(200)}, after: []store.Cap{every(200)}, ran: fairqueue.Moves - parked}, // That of api counts for it alone, and is written.
		"another gate's cap": {before: []store.Cap{queue(200)}, after: []store.Cap{queue(200), other}},
		"another cap":        {before: []store.Cap{queue(200)}, after: []store.Cap{queue(201)}, ran: fairqueue.Moves},
		"a new cap":          {after: []store.Cap{queue(200)}, ran: fairqueue.Moves},
		"no cap any more":    {before: []store.Cap{queue(200)}, ran: fairqueue.Moves},
		"a new default":      {after: []store.Cap{every(200)}, ran: fairqueue.Moves - parked},
		"another default":    {before: []store.Cap{every(200)}, after: []store.Cap{every(201)}, ran: fairqueue.Moves - parked},
		"no default anymore": {before: []store.Cap{every(200)}, ran: fairqueue.Moves - parked},
	} {
		for _, known := range []bool{false, true} {
			t.Run(fmt.Sprint(name, known), func(t *testing.T) {
				t.Parallel()
				p := newPair(t)
				p.register("w1", mailPool, 200)
				first, u := store.PolicyUpdate{Caps: row.before}, store.PolicyUpdate{Caps: row.after}
				p.put(first)
				call := func(id string) {
					j := mail(id, "j")
					j.Downstream = "api"
					p.admit(j)
				}
				ready := func() int64 {
					seen := p.same("census", func(s store.Partition) any { return replied(s.Census(p.ctx)) }).(reply)
					return seen.Values[0].(store.Census).Ready
				}
				call("one")
				p.gate(0)
				for i := range fairqueue.Moves + parked {
					call(fmt.Sprint("tenant-", i))
				}
				p.gate(store.Unlimited)
				before := ready()
				if known {
					u.Before = &first
				}
				p.put(u)
				if ran := int(ready() - before); ran != row.ran {
					t.Errorf("the edit dispatched %d, want %d", ran, row.ran)
				}
				p.list(store.ListQuery{Place: admission.PlaceWaiting})
			})
		}
	}
}
