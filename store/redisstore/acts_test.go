package redisstore

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/breaker"
	"github.com/headgate/headgate/internal/redistest"
	"github.com/headgate/headgate/store"
)

// dead makes dead letters of jobs and returns their keys. Nothing else may live.
func (y *yard) dead(ids ...string) (keys []admission.Key) {
	y.tb.Helper()
	y.empty()
	y.kill(ids...)
	for _, id := range ids {
		keys = append(keys, admission.Key{Tenant: "acme", ID: id})
	}
	return keys
}

// TestEveryActIsInTheAudit does what an operator can do, and finds each with who, why, what and to how many jobs. What a tenant does
// to its own jobs is not there, nor what changed nothing.
func TestEveryActIsInTheAudit(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	ctx, s := t.Context(), y.store
	by := store.Intervention{Author: "ada", Reason: "we move | house"}
	own := store.Intervention{Author: "ci (tenant acme)", Own: true}
	y.register(1)
	key := func(id string) admission.Key { return admission.Key{Tenant: "acme", ID: id} }
	for _, act := range []struct {
		do   func(by store.Intervention) error
		want string
	}{
		{func(by store.Intervention) error {
			_, err := s.Pause(ctx, store.QueueGate("mail"), time.Hour, by)
			return err
		}, "pause q:mail 0 1h0m0s"},
		{func(by store.Intervention) error { _, err := s.Unpause(ctx, store.QueueGate("mail"), by); return err }, "unpause q:mail 0 0s"},
		{func(by store.Intervention) error {
			_, _, err := s.SetGate(ctx, store.Gate{Name: store.TenantGate("bolt"), Limit: 3, By: by})
			return err
		}, "gate t:bolt 0 0s"},
		{func(by store.Intervention) error { return s.Suspend(ctx, store.TenantGate("bolt"), 0, by) }, "suspend t:bolt 0 0s"},
		{func(by store.Intervention) error { _, err := s.Resume(ctx, store.TenantGate("bolt"), by); return err }, "resume t:bolt 0 0s"},
		{func(by store.Intervention) error { _, err := s.Drain(ctx, "mail", time.Minute, by); return err }, "drain q:mail 0 1m0s"},
		{func(by store.Intervention) error { _, err := s.Resume(ctx, store.QueueGate("mail"), by); return err }, "resume q:mail 0 0s"},
		{func(by store.Intervention) error {
			y.admit(mail("acme", "a"), mail("acme", "b")) //nolint:contextcheck // the test's own
			_, _, err := s.Cancel(ctx, key("b"), by)
			return err
		}, "cancel acme:b 1 0s"},
		{func(by store.Intervention) error { _, err := s.PurgeQueue(ctx, "mail", "", by); return err }, "purge_queue q:mail 1 0s"},
		{func(by store.Intervention) error {
			_, err := s.Purge(ctx, append(y.dead("c", "d"), key("nobody")), by) //nolint:contextcheck // the test's own
			return err
		}, "purge q:mail 2 0s"},
		{func(by store.Intervention) error { return y.redrive(y.dead("e")[0], by, false) }, "redrive q:mail 1 0s"},
		{func(by store.Intervention) error { return y.redrive(y.dead("f")[0], by, true) }, "redrive_without_limits q:mail 1 0s"},
		{func(by store.Intervention) error {
			check(t, y.client.HSet(ctx, s.conn.Partition.Buckets("acme"), "mail:high", "1:1:1").Err())
			_, err := s.ResetBucket(ctx, "acme", "mail", admission.High, by)
			return err
		}, "reset_bucket acme:mail:high 0 0s"},
		{func(by store.Intervention) error {
			_, err := s.ForceBreaker(ctx, "smtp", breaker.Open, time.Minute, by)
			return err
		}, "open smtp 0 1m0s"},
	} {
		check(t, act.do(by))
		page, err := s.Audit(ctx, store.AuditQuery{Limit: 1})
		check(t, err)
		if len(page.Entries) == 0 {
			t.Fatalf("%s: no entry", act.want)
		}
		e := page.Entries[0]
		if got := fmt.Sprint(e.Action, " ", e.Name+e.Downstream, " ", e.Jobs, " ", e.For); got != act.want || e.Author != "ada" || !strings.HasPrefix(e.Reason, "we move | house") || time.Since(e.At) > time.Minute {
			t.Errorf("%s is told as %s, %+v", act.want, got, e)
		}
	}
	before := wholeAudit(ctx, t, s, 100)
	y.admit(mail("acme", "x"), mail("acme", "y"))
	_, _, err := s.Cancel(ctx, key("x"), own)
	check(t, err)
	_, _, err = s.Cancel(ctx, key("y"), store.Intervention{Reason: "a program's own"})
	check(t, err)
	_, err = s.Purge(ctx, y.dead("z"), own)
	check(t, err)
	if was, err := s.Unpause(ctx, store.QueueGate("mail"), by); was || err != nil {
		t.Errorf("%t, %v", was, err)
	}
	if was, err := s.Resume(ctx, store.QueueGate("mail"), by); was || err != nil {
		t.Errorf("%t, %v", was, err)
	}
	if was, err := s.ResetBucket(ctx, "acme", "mail", admission.High, by); was || err != nil {
		t.Errorf("%t, %v", was, err)
	}
	if after := wholeAudit(ctx, t, s, 100); len(after) != len(before) {
		t.Errorf("entries of what nobody is to be told: %+v", after[:len(after)-len(before)])
	}
}

// TestAJobThatIsNowhereIsNotCancelled: its record is left of half a transaction.
func TestAJobThatIsNowhereIsNotCancelled(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	y.admit(mail("acme", "a"))
	lanes, err := y.client.Keys(t.Context(), strings.TrimSuffix(y.store.Keys().State(), "state")+"lane:*").Result()
	check(t, err)
	check(t, y.client.Del(t.Context(), lanes...).Err())
	_, _, err = y.store.Cancel(t.Context(), admission.Key{Tenant: "acme", ID: "a"}, store.Intervention{})
	if !errors.Is(err, store.ErrUnplaced) {
		t.Errorf("%v", err)
	}
	if g := y.look("a"); g.Place != store.PlaceUnknown {
		t.Errorf("it is %s", g.Place)
	}
}

// redrive brings a letter back.
func (y *yard) redrive(key admission.Key, by store.Intervention, free bool) error {
	letters, err := y.store.Letters(y.tb.Context(), []admission.Key{key})
	check(y.tb, err)
	c, err := letters[0].Redrive(1, &[admission.Levels]admission.Limit{})
	check(y.tb, err)
	c.By, c.Free = by, free
	verdicts, err := y.store.Admit(y.tb.Context(), 0, []store.Candidate{c})
	if err == nil {
		err = verdicts[0].Err()
	}
	return err
}

// empty cancels what waits.
func (y *yard) empty() {
	y.tb.Helper()
	_, err := y.store.PurgeQueue(y.tb.Context(), "mail", "", store.Intervention{Own: true})
	check(y.tb, err)
}

// TestOneActIsOneEntry: many calls of one act are one entry with the number of all, and those of another author, of another act
// and of another queue are not in it.
func TestOneActIsOneEntry(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	ctx := t.Context()
	purge := func(n int, author, act string) {
		for range n {
			y.admit(mail("acme", fmt.Sprint("j", time.Now().UnixNano()))) //nolint:contextcheck // the test's own
			_, err := y.store.PurgeQueue(ctx, "mail", "", store.Intervention{Author: author, Act: act})
			check(t, err)
		}
	}
	purge(20, "ada", "one")
	purge(3, "bob", "one")
	purge(2, "ada", "two")
	purge(2, "ada", "one")
	var got []string
	for _, e := range wholeAudit(ctx, t, y.store, 10) {
		got = append(got, fmt.Sprint(e.Author, e.Jobs))
	}
	if want := []string{"ada22", "ada2", "bob3"}; !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}

// TestTheAuditIsFiltered goes through pages that hold few of what is asked for.
func TestTheAuditIsFiltered(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	ctx := t.Context()
	for i := range 60 {
		check(t, y.store.Suspend(ctx, store.TenantGate(fmt.Sprint("t", i%10)), time.Hour, store.Intervention{Author: []string{"ada", "bob"}[i%2]}))
	}
	count := func(q store.AuditQuery) (n int) {
		for q.Limit = 7; ; {
			page, err := y.store.Audit(ctx, q)
			check(t, err)
			n += len(page.Entries)
			if q.Cursor = page.Cursor; q.Cursor == "" {
				return n
			}
		}
	}
	for want, q := range map[int]store.AuditQuery{60: {Action: store.AuditSuspend}, 30: {Author: "bob"}, 6: {Name: "t:t3"}, 0: {Name: "t:t3", Author: "ada"}} {
		if n := count(q); n != want {
			t.Errorf("%+v: %d entries, want %d", q, n, want)
		}
	}
	if _, err := y.store.Audit(ctx, store.AuditQuery{Action: "nonsense"}); !errors.Is(err, admission.ErrInvalid) {
		t.Errorf("%v", err)
	}
}

// TestTheAuditOfAllPartitions has what was done in one of them, and once what was done in all, in the order of their times.
func TestTheAuditOfAllPartitions(t *testing.T) {
	t.Parallel()
	s, err := openMany(t.Context(), redistest.Shared(t).Client(t), Config{Prefix: redistest.Prefix(t), Partitions: 4})
	check(t, err)
	ctx := t.Context()
	var want []string
	for i := range 12 {
		name := store.TenantGate(fmt.Sprint("t", i))
		if i%4 == 3 {
			name = store.QueueGate(fmt.Sprint("q", i))
		}
		_, err := s.Pause(ctx, name, 0, store.Intervention{Author: "ada"})
		check(t, err)
		want = append([]string{"pause " + string(name)}, want...)
	}
	check(t, s.PutPolicy(ctx, edit(1, `{"version":1}`)))
	want = append([]string{"policy "}, want...)
	_, err = s.Unpause(ctx, store.QueueGate("q3"), store.Intervention{})
	check(t, err)
	want = append([]string{"unpause q:q3"}, want...)
	for _, limit := range []int{1, 5, 100} {
		var got []string
		for _, e := range wholeAudit(ctx, t, s, limit) {
			got = append(got, e.Action+" "+e.Name)
		}
		if !slices.Equal(got, want) {
			t.Errorf("in pages of %d:\n%v, want\n%v", limit, got, want)
		}
	}
}

// TestHoldsSayWho: every pause and suspension says who set it, when and why, in one partition and in several, and what an older
// release has set is read too.
func TestHoldsSayWho(t *testing.T) {
	t.Parallel()
	for _, parts := range []int{1, 3} {
		client := redistest.Shared(t).Client(t)
		s, err := openMany(t.Context(), client, Config{Prefix: redistest.Prefix(t), Partitions: parts})
		check(t, err)
		ctx := t.Context()
		ada := store.Intervention{Author: "ada", Reason: "a|b\nc\x01"}
		for _, name := range []store.GateName{store.QueueGate("mail"), store.TenantGate("acme"), store.TenantQueueGate("acme", "mail"), store.DownstreamGate("smtp")} {
			_, err := s.Pause(ctx, name, time.Hour, ada)
			check(t, err)
		}
		check(t, s.Suspend(ctx, store.QueueGate("mail"), 0, ada))
		_, _, err = s.SetGate(ctx, store.Gate{Name: store.TenantGate("capped"), Limit: 2, By: ada})
		check(t, err)
		first := s.parts[0]
		check(t, client.HSet(ctx, first.conn.Partition.Base()+"suspended", "q:old", "0|of before").Err())
		holds, err := s.Holds(ctx)
		check(t, err)
		var got []string
		for _, h := range holds {
			if h.Name == store.QueueGate("old") {
				if h.Author != "" || !h.Since.IsZero() || h.Reason != "of before" {
					t.Errorf("%+v", h)
				}
				continue
			}
			if h.Author != "ada" || h.Reason != ada.Reason || time.Since(h.Since) > time.Minute || h.Until.IsZero() != (h.What == store.HeldEnqueue) {
				t.Errorf("%+v", h)
			}
			got = append(got, h.Kind()+" "+string(h.What))
		}
		if want := []string{"downstream dispatch", "queue dispatch", "queue enqueue", "tenant dispatch", "tenant_queue dispatch"}; !slices.Equal(got, want) {
			t.Errorf("%v, want %v", got, want)
		}
		v, err := s.of("acme").Admit(ctx, 0, []store.Candidate{{Job: new(mail("acme", "a")), Class: 1, Limits: &[admission.Levels]admission.Limit{}}})
		check(t, err)
		if v[0].Reason != admission.ReasonPaused || v[0].Detail != ada.Reason {
			t.Errorf("a producer is told %q", v[0].Detail)
		}
	}
}

// between calls do after each command of a client.
type between struct{ do func() }

func (b between) DialHook(next redis.DialHook) redis.DialHook { return next }
func (b between) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		err := next(ctx, cmd)
		b.do()
		return err
	}
}

func (b between) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

// TestAnEditBetweenThePauseAndItsEndStays: whichever command of Pause or Unpause an edit of the policy comes after, the cap is that
// of the policy in the end.
func TestAnEditBetweenThePauseAndItsEndStays(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	ctx := t.Context()
	client := redistest.Shared(t).Client(t)
	other, err := openOnly(ctx, client, y.store.config)
	check(t, err)
	version := int64(0)
	put := func(limit int) {
		version++
		u := edit(version, fmt.Sprintf(`{"version":%d}`, version))
		u.Caps = []store.Cap{{Gate: store.TenantGate("acme"), Limit: limit}}
		check(t, y.store.PutPolicy(ctx, u))
	}
	put(5)
	armed, limit := false, 10
	client.AddHook(between{func() {
		if armed {
			armed, limit = false, limit+1
			put(limit)
		}
	}})
	for range 2 {
		for _, do := range []func() error{
			func() error {
				_, err := other.Pause(ctx, store.TenantGate("acme"), 0, store.Intervention{})
				return err
			},
			func() error { _, err := other.Unpause(ctx, store.TenantGate("acme"), store.Intervention{}); return err },
		} {
			armed = true
			check(t, do())
		}
		gates, err := y.store.Gates(ctx)
		check(t, err)
		if len(gates) != 1 || gates[0].Limit != limit {
			t.Errorf("%+v, the policy says %d", gates, limit)
		}
	}
	// Without an edit the cap is what it was.
	_, err = other.Pause(ctx, store.TenantGate("acme"), 0, store.Intervention{})
	check(t, err)
	_, err = other.Unpause(ctx, store.TenantGate("acme"), store.Intervention{})
	check(t, err)
	gates, err := y.store.Gates(ctx)
	check(t, err)
	if len(gates) != 1 || gates[0].Limit != limit {
		t.Errorf("after a pause %+v, the policy says %d", gates, limit)
	}
}

// TestADrainLeavesASuspensionThatEndsLater, and one without an end; it takes the place of one that ends before.
func TestADrainLeavesASuspensionThatEndsLater(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	ctx := t.Context()
	for _, row := range []struct {
		before time.Duration
		kept   bool
	}{{time.Hour, true}, {0, true}, {time.Second, false}} {
		check(t, y.store.Suspend(ctx, store.QueueGate("mail"), row.before, store.Intervention{Author: "ada", Reason: "house"}))
		until, err := y.store.Drain(ctx, "mail", time.Minute, store.Intervention{Author: "bob"})
		check(t, err)
		holds, err := y.store.Holds(ctx)
		check(t, err)
		if len(holds) != 1 || (holds[0].Author == "ada") != row.kept || !holds[0].Until.Equal(until) {
			t.Errorf("after one of %s: until %s, %+v", row.before, until, holds)
		}
	}
}
