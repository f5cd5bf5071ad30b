package redisstore

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"runtime/debug"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/breaker"
	"github.com/headgate/headgate/internal/redistest"
	"github.com/headgate/headgate/store"
)

// damage is what becomes of a reply, of so many words, on its way from Redis.
type damage struct {
	name string
	// words are those of an array, text is in the place of each word or text; nil leaves it.
	words func([]string) []string
	text  func(string) string
}

// damages are such as no Redis of ours sends: of another version, of a proxy, of somebody who writes into our keys.
func damages() (all []damage) {
	for n := range 5 {
		all = append(all, damage{name: fmt.Sprintf("cut to %d words", n), words: func(w []string) []string { return w[:min(n, len(w))] }})
	}
	all = append(all, damage{name: "one word more", words: func(w []string) []string { return append(slices.Clip(w), "more") }})
	for _, text := range []string{"", "x", " ", "|", ":::", "-1 -1 -1 -1 -1 -1", "9223372036854775807 9223372036854775807", "9223372036854775808", "nan|inf|-1", "\xff\x00\xff", strings.Repeat("\x00", 30)} {
		all = append(all, damage{name: fmt.Sprintf("all %.20q", text), text: func(string) string { return text }})
		all = append(all, damage{name: fmt.Sprintf("after the first word all %.20q", text), words: func(w []string) []string {
			out := append([]string(nil), w...)
			for i := 1; i < len(out); i++ {
				out[i] = text
			}
			return out
		}})
	}
	return append(all,
		damage{name: "half of each", text: func(s string) string { return s[:len(s)/2] }},
		damage{name: "all but the last byte", text: func(s string) string { return s[:max(0, len(s)-1)] }})
}

// damagedLine damages the replies that a client reads, while there is a damage.
type damagedLine struct{ present atomic.Pointer[damage] }

func (l *damagedLine) DialHook(next redis.DialHook) redis.DialHook { return next }

func (l *damagedLine) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		err := next(ctx, cmds)
		for _, cmd := range cmds {
			l.spoil(cmd)
		}
		return err
	}
}

func (l *damagedLine) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		err := next(ctx, cmd)
		if err == nil {
			l.spoil(cmd)
		}
		return err
	}
}

func (l *damagedLine) spoil(cmd redis.Cmder) {
	d := l.present.Load()
	if d == nil || cmd.Err() != nil {
		return
	}
	text := func(s string) string {
		if d.text == nil {
			return s
		}
		return d.text(s)
	}
	switch c := cmd.(type) {
	case *redis.StringCmd:
		c.SetVal(text(c.Val()))
	case *redis.StringSliceCmd:
		c.SetVal(d.array(c.Val()))
	case *redis.MapStringStringCmd:
		for name, value := range c.Val() {
			c.Val()[name] = text(value)
		}
	case *redis.SliceCmd:
		for i, value := range c.Val() {
			if s, ok := value.(string); ok {
				c.Val()[i] = text(s)
			}
		}
	case *redis.XMessageSliceCmd:
		spoilMessages(c.Val(), text)
	case *redis.XStreamSliceCmd:
		for _, stream := range c.Val() {
			spoilMessages(stream.Messages, text)
		}
	case *redis.ZSliceCmd:
		for i, z := range c.Val() {
			if s, ok := z.Member.(string); ok {
				c.Val()[i].Member = text(s)
			}
		}
	}
}

func spoilMessages(messages []redis.XMessage, text func(string) string) {
	for i := range messages {
		for name, value := range messages[i].Values {
			if s, ok := value.(string); ok {
				messages[i].Values[name] = text(s)
			}
		}
	}
}

func (d *damage) array(words []string) []string {
	if d.words != nil {
		return d.words(words)
	}
	out := make([]string, len(words))
	for i, word := range words {
		out[i] = d.text(word)
	}
	return out
}

// TestDamagedRepliesEndNoProcess: whatever a reply is like, a call returns.
func TestDamagedRepliesEndNoProcess(t *testing.T) {
	t.Parallel()
	for _, d := range damages() {
		t.Run(d.name, func(t *testing.T) {
			t.Parallel()
			prefix := redistest.Prefix(t)
			y := &yard{tb: t, tokens: map[string]string{}}
			var err error
			y.store, err = openOnly(t.Context(), redistest.Shared(t).Client(t), Config{Prefix: prefix})
			check(t, err)
			y.furnish()
			line := &damagedLine{}
			client := redistest.Shared(t).Client(t)
			client.AddHook(line)
			s, err := openOnly(t.Context(), client, Config{Prefix: prefix})
			check(t, err)
			line.present.Store(&d)
			calls := y.calls(s)
			for _, name := range inOrder(calls) {
				call := calls[name]
				func() {
					defer func() {
						if value := recover(); value != nil {
							t.Errorf("%s: panic: %v\n%s", name, value, debug.Stack())
						}
					}()
					ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
					defer cancel()
					if err := call(ctx); errors.Is(err, context.DeadlineExceeded) {
						t.Errorf("%s: %v", name, err)
					}
				}()
			}
		})
	}
}

// inOrder sorts calls by name, those last that take away what others are to find, and has all of them once more the
// other way round: some find more by then.
func inOrder(calls map[string]func(context.Context) error) []string {
	last := []string{"PutPolicy", "Unpause", "ResetBreaker", "EndProbe", "Promote", "Cancel", "Purge", "Finish", "Reclaim"}
	names := slices.Sorted(maps.Keys(calls))
	slices.SortStableFunc(names, func(a, b string) int { return slices.Index(last, a) - slices.Index(last, b) })
	back := slices.Clone(names)
	slices.Reverse(back)
	return slices.Concat(names, back)
}

// furnish puts something into every place.
func (y *yard) furnish() {
	y.tb.Helper()
	ctx := y.tb.Context()
	y.kill("dead")
	later, called := mail("acme", "later"), mail("acme", "called")
	later.Delay, called.Downstream = time.Hour, "smtp"
	y.admit(mail("acme", "running"), later, called)
	y.read(1)
	_, err := y.store.ForceBreaker(ctx, "smtp", breaker.Open, time.Hour, store.Intervention{Reason: "away"})
	check(y.tb, err)
	_, err = y.store.Pause(ctx, store.QueueGate("mail"), time.Hour, store.Intervention{Reason: "maintenance"})
	check(y.tb, err)
	check(y.tb, y.store.Suspend(ctx, store.TenantGate("other"), time.Hour, store.Intervention{Reason: "unpaid"}))
	check(y.tb, y.store.PutPolicy(ctx, store.PolicyUpdate{Text: []byte(`{"version":1}`), Version: 1}))
	check(y.tb, y.store.Alive(ctx, "s", time.Hour))
}

// calls are those of a store that read replies.
func (y *yard) calls(s *Partition) map[string]func(context.Context) error {
	key := func(id string) admission.Key { return admission.Key{Tenant: "acme", ID: id} }
	job := mail("acme", "new")
	limits := [admission.Levels]admission.Limit{{Disabled: true}, admission.PerSecond(10), {Disabled: true}, {Disabled: true}}
	question := store.Question{Tenant: "acme", Queue: "mail", Class: admission.Medium, Cost: 1, Limits: limits}
	all := map[string]func(context.Context) error{
		"Admit": func(ctx context.Context) error {
			_, err := s.Admit(ctx, 1, []store.Candidate{{Job: &job, Class: 1, Limits: &limits}})
			return err
		},
		"Check": func(ctx context.Context) error {
			_, _, err := s.Check(ctx, 1, false, []store.Question{question})
			return err
		},
		"Take": func(ctx context.Context) error { _, _, err := s.Take(ctx, 1, question); return err },
		"Grant": func(ctx context.Context) error {
			_, err := s.Grant(ctx, &store.Grant{Version: 1, Member: "m", Lease: time.Second, Beat: time.Second, Questions: []store.Question{question}, Accounts: []store.Account{{Level: 1, Want: 8, Cap: 8}}})
			return err
		},
		"Shadow": func(ctx context.Context) error { return s.Shadow(ctx, 1, "x", []store.Question{question}) },
		"Count": func(ctx context.Context) error {
			_, err := s.Count(ctx, []store.ScopeCount{{Scope: "acme", Allowed: 1}})
			return err
		},
		"Minutes":   func(ctx context.Context) error { _, err := s.Minutes(ctx, "acme"); return err },
		"LastHour":  func(ctx context.Context) error { _, err := s.LastHour(ctx, time.Second); return err },
		"Register":  func(ctx context.Context) error { _, err := s.Register(ctx, "w2", yardPool, 1, time.Hour); return err },
		"Heartbeat": func(ctx context.Context) error { _, err := s.Heartbeat(ctx, "w1", time.Hour, ""); return err },
		"Read":      func(ctx context.Context) error { _, err := s.Read(ctx, "w1", yardPool.ID(), 5, -1, true); return err },
		"Started": func(ctx context.Context) error {
			return s.Started(ctx, yardPool.ID(), "w1", y.tokens["running"], key("running"))
		},
		"Held": func(ctx context.Context) error {
			_, err := s.Held(ctx, yardPool.ID(), "w1", y.tokens["running"], key("running"))
			return err
		},
		"Registration": func(ctx context.Context) error { _, err := s.Registration(ctx, yardPool.ID(), "w1"); return err },
		"Promote":      func(ctx context.Context) error { _, err := s.Promote(ctx, "s", time.Second); return err },
		"Foresee":      func(ctx context.Context) error { _, err := s.Foresee(ctx, yardPool.ID()); return err },
		"Demand":       func(ctx context.Context) error { _, err := s.Demand(ctx, yardPool); return err },
		"TimerLease":   func(ctx context.Context) error { _, _, err := s.TimerLease(ctx); return err },
		"Schedulers":   func(ctx context.Context) error { _, err := s.Schedulers(ctx); return err },
		"Look":         func(ctx context.Context) error { _, err := s.Look(ctx, key("called")); return err },
		"Look dead":    func(ctx context.Context) error { _, err := s.Look(ctx, key("dead")); return err },
		"Payload":      func(ctx context.Context) error { _, err := s.Payload(ctx, key("called")); return err },
		"Result":       func(ctx context.Context) error { _, err := s.Result(ctx, key("called")); return err },
		"List":         func(ctx context.Context) error { _, err := s.List(ctx, store.ListQuery{Limit: 10}); return err },
		"List dead": func(ctx context.Context) error {
			_, err := s.List(ctx, store.ListQuery{Place: store.PlaceDead, Limit: 10})
			return err
		},
		"Letters": func(ctx context.Context) error { _, err := s.Letters(ctx, []admission.Key{key("dead")}); return err },
		"Deaths": func(ctx context.Context) error {
			deaths, err := s.Deaths(ctx, time.Time{}, 10)
			_, bad := s.DeadLetters(ctx, deaths)
			return errors.Join(err, bad)
		},
		"Followed":      func(ctx context.Context) error { _, err := s.Followed(ctx, "f"); return err },
		"BreakerEvents": func(ctx context.Context) error { _, _, err := s.BreakerEvents(ctx, "", -1); return err },
		"Breakers":      func(ctx context.Context) error { _, err := s.Breakers(ctx); return err },
		"Breaker":       func(ctx context.Context) error { _, err := s.Breaker(ctx, "smtp"); return err },
		"BeginProbe":    func(ctx context.Context) error { _, _, _, err := s.BeginProbe(ctx, "smtp", "c"); return err },
		"EndProbe":      func(ctx context.Context) error { _, _, err := s.EndProbe(ctx, "smtp", "c"); return err },
		"ResetBreaker": func(ctx context.Context) error {
			_, err := s.ResetBreaker(ctx, "smtp", store.Intervention{Reason: "over"})
			return err
		},
		"Queues":         func(ctx context.Context) error { _, err := s.Queues(ctx); return err },
		"Queue":          func(ctx context.Context) error { _, err := s.Queue(ctx, "mail"); return err },
		"Peek":           func(ctx context.Context) error { _, _, err := s.Peek(ctx, "mail", 5); return err },
		"WaitingTenants": func(ctx context.Context) error { _, _, err := s.WaitingTenants(ctx, "mail", 5); return err },
		"Gates":          func(ctx context.Context) error { _, err := s.Gates(ctx); return err },
		"Suspensions":    func(ctx context.Context) error { _, err := s.Suspensions(ctx); return err },
		"Workers":        func(ctx context.Context) error { _, err := s.Workers(ctx); return err },
		"Census":         func(ctx context.Context) error { _, err := s.Census(ctx); return err },
		"Counters":       func(ctx context.Context) error { _, err := s.Counters(ctx); return err },
		"Vitals":         func(ctx context.Context) error { _, err := s.Vitals(ctx); return err },
		"CheckLayout":    s.CheckLayout,
		"Depths":         func(ctx context.Context) error { _, err := s.Depths(ctx, "acme", []string{"mail"}); return err },
		"Memory":         func(ctx context.Context) error { _, _, err := s.Memory(ctx); return err },
		"Audit":          func(ctx context.Context) error { _, err := s.Audit(ctx, store.AuditQuery{Limit: 10}); return err },
		"PolicyVersions": func(ctx context.Context) error { _, err := s.PolicyVersions(ctx); return err },
		"PolicyVersion":  func(ctx context.Context) error { _, err := s.PolicyVersion(ctx, 1); return err },
		"PutPolicy": func(ctx context.Context) error {
			return s.PutPolicy(ctx, store.PolicyUpdate{Text: []byte(`{"version":2}`), Version: 2})
		},
		"ShadowCounts": func(ctx context.Context) error { _, err := s.ShadowCounts(ctx); return err },
		"LastTick":     func(ctx context.Context) error { _, err := s.LastTick(ctx, "t", time.Now()); return err },
		"Remaining":    func(ctx context.Context) error { _, err := s.Remaining(ctx, "nothing"); return err },
		"Unpause": func(ctx context.Context) error {
			_, err := s.Unpause(ctx, store.QueueGate("mail"), store.Intervention{})
			return err
		},
		"Pause": func(ctx context.Context) error {
			_, err := s.Pause(ctx, store.TenantGate("acme"), 0, store.Intervention{})
			return err
		},
		"Cancel": func(ctx context.Context) error {
			_, _, err := s.Cancel(ctx, key("later"), store.Intervention{})
			return err
		},
		"Purge": func(ctx context.Context) error {
			_, err := s.Purge(ctx, []admission.Key{key("dead")}, store.Intervention{})
			return err
		},
		"Finish": func(ctx context.Context) error {
			_, _, err := s.Finish(ctx, yardPool.ID(), "w1", []store.Finish{{Token: y.tokens["running"], Key: key("running"), Outcome: store.Complete}})
			return err
		},
		"Reclaim": func(ctx context.Context) error { _, err := s.Reclaim(ctx, "w1"); return err },
	}
	return all
}

// TestATenantsEntryThatIsTooShortIsAnError: as one that was cut.
func TestATenantsEntryThatIsTooShortIsAnError(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	if lanes, _, err := y.store.LanesIn(t.Context(), "1:mail", "acme", "a+", 9); err == nil {
		t.Errorf("lanes %q", lanes)
	}
}
