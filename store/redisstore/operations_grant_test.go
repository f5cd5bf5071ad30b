package redisstore

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/buckets"
	"github.com/headgate/headgate/store"
)

// modelLease is what a limiter holds of a scope, until the buckets' time ends.
type modelLease struct {
	ends   int64
	tokens admission.Tokens
}

const (
	modelHolders   = 128
	walkLease      = 20 * time.Second
	walkBeat       = 30 * time.Second
	walkMostAmount = 30
)

// grant asks for tokens and leases of the same scopes as up to four limiters do, one after the other.
func (w *walk) grant() {
	questions := make([]store.Question, w.number("questions", 1, 3))
	for i := range questions {
		questions[i] = w.question()
	}
	for call := range w.number("calls", 1, 4) {
		if call > 0 {
			w.tick()
		}
		w.grantOnce(questions)
	}
}

func (w *walk) grantOnce(questions []store.Question) {
	g := store.Grant{
		Version: w.version, Member: pick(w, "member", []string{"one", "two", "three"}), Lease: walkLease,
		Beat: pick(w, "beat", []time.Duration{0, 0, walkBeat, -1}), Questions: slices.Clone(questions),
	}
	accounted := map[admission.Scope]bool{}
	for i := range g.Questions {
		q := &g.Questions[i]
		if w.number("fetches", 0, 1) == 0 {
			q.Cost = 0
		}
		level := levelOf(q)
		for level > admission.LevelGlobal && (q.Limits[level].Disabled || w.number("up", 0, 2) == 0) {
			level--
		}
		scope := admission.ScopeAt(level, q.Tenant, q.Queue, q.Class)
		if !accounted[scope] {
			accounted[scope] = true
			g.Accounts = append(g.Accounts, w.account(i, level))
		}
	}
	send := func() {
		want := w.model.grant(w.now, &g)
		granted, err := w.store.Grant(w.ctx, &g)
		check(w.tb, err)
		if got := grantWords(&granted); !slices.Equal(got, want) {
			w.rt.Fatalf("grant %+v: script says\n%q, model\n%q", g, got, want)
		}
	}
	send()
	w.resend = send
}

func (w *walk) account(question int, level admission.Level) store.Account {
	amount := func(name string) admission.Tokens { return admission.Tokens(w.number(name, 0, walkMostAmount)) }
	a := store.Account{Question: question, Level: level}
	switch w.number("kind", 0, 3) {
	case 0:
		a.Back = amount("back")
	case 1:
		a.Owed = amount("owed")
	}
	if w.number("wants", 0, 3) > 0 {
		a.Want, a.Held, a.Cap = amount("want"), amount("held"), 2*amount("cap")
	}
	return a
}

// levelOf is the innermost that a question names.
func levelOf(q *store.Question) admission.Level {
	switch {
	case q.Class != "":
		return admission.LevelPriority
	case q.Queue != "":
		return admission.LevelQueue
	case q.Tenant != "":
		return admission.LevelTenant
	}
	return admission.LevelGlobal
}

func grantWords(granted *store.Granted) []string {
	words := []string{fmt.Sprintf("%d live", granted.Members)}
	for _, v := range granted.Verdicts {
		words = append(words, askedWord(v))
	}
	for _, l := range granted.Leases {
		words = append(words, fmt.Sprintf("%+v", l))
	}
	return words
}

func askedWord(v admission.Verdict) string {
	if v.Decision == admission.Admitted {
		return "admitted"
	}
	return verdictText(v)
}

// vault is the model's buckets in the middle of a grant.
type vault struct {
	*model
	set   *buckets.Set
	at    buckets.Instant
	dirty bool
}

func (m *model) grant(now int64, g *store.Grant) []string {
	v := &vault{model: m, set: m.buckets.Clone(), at: buckets.Instant(m.bucketTime(now))}
	granted := store.Granted{Members: m.beat(int64(v.at), g), Leases: make([]store.Leased, len(g.Accounts))}
	for i := range g.Accounts {
		b, ok := v.bucket(g, &g.Accounts[i])
		if ok {
			granted.Leases[i].Paid = v.draw(b, g.Accounts[i].Owed, 1)
		}
		if back := v.endLease(b.Scope, g.Member, g.Accounts[i].Back); ok {
			v.giveBack(b, back)
		}
	}
	for _, q := range g.Questions {
		if q.Cost == 0 {
			continue
		}
		verdict := v.set.Take(v.at, m.changed, buckets.AppendPath(nil, q.Limits, q.Tenant, q.Queue, q.Class), q.Cost)
		v.dirty = v.dirty || verdict.Decision == admission.Admitted
		granted.Verdicts = append(granted.Verdicts, verdict)
	}
	for i := range g.Accounts {
		if b, ok := v.bucket(g, &g.Accounts[i]); ok {
			granted.Leases[i].Tokens, granted.Leases[i].Holders = v.lease(b, g, &g.Accounts[i])
		}
	}
	if v.dirty {
		m.buckets = *v.set
		m.begin(now)
	}
	return grantWords(&granted)
}

// beat notes that a limiter lives and returns how many do; below zero if it does not say.
func (m *model) beat(at int64, g *store.Grant) int {
	if g.Beat == 0 {
		return -1
	}
	for name, until := range m.limiters {
		if until <= at {
			delete(m.limiters, name)
		}
	}
	delete(m.limiters, g.Member)
	if g.Beat > 0 {
		m.limiters[g.Member] = at + g.Beat.Microseconds()
	}
	return len(m.limiters)
}

// bucket returns that of an account; ok says that it has a limit.
func (v *vault) bucket(g *store.Grant, a *store.Account) (b buckets.LevelLimit, ok bool) {
	q := &g.Questions[a.Question]
	b.Scope = admission.ScopeAt(a.Level, q.Tenant, q.Queue, q.Class)
	limit := q.Limits[a.Level]
	if limit.Disabled {
		return b, false
	}
	b.Limit = buckets.LimitOf(limit)
	return b, true
}

func (v *vault) settle(b buckets.LevelLimit) (buckets.Micro, buckets.Instant) {
	return buckets.Settle(v.at, v.changed, v.set.Bucket(b.Scope), b.Limit)
}

// draw takes up to so many tokens, at most a part of what there is.
func (v *vault) draw(b buckets.LevelLimit, tokens admission.Tokens, part float64) admission.Tokens {
	level, stamp := v.settle(b)
	drawn := max(0, min(tokens, admission.Tokens(math.Floor(float64(level)*part/1e6))))
	if drawn > 0 {
		v.set.Put(b.Scope, bucketAt(level-buckets.MicroOf(drawn), stamp, b.Limit))
		v.dirty = true
	}
	return drawn
}

// giveBack puts tokens into a bucket, unless it was full as the call began.
func (v *vault) giveBack(b buckets.LevelLimit, tokens admission.Tokens) {
	if tokens == 0 || b.Scope != admission.Global && v.buckets.Bucket(b.Scope).Absent() {
		return
	}
	level, stamp := v.settle(b)
	if level += buckets.MicroOf(tokens); level >= b.Limit.Burst {
		level, stamp = b.Limit.Burst, v.at
	}
	v.set.Put(b.Scope, bucketAt(level, stamp, b.Limit))
	v.refunds += int64(tokens)
	v.dirty = true
}

// held returns the leases of a scope that have not ended.
func (v *vault) held(scope admission.Scope) map[string]modelLease {
	all := v.leases[scope]
	for member, lease := range all {
		if lease.ends <= int64(v.at) {
			delete(all, member)
		}
	}
	return all
}

// endLease ends a lease of which tokens are given back, and returns how many of them were on it.
func (v *vault) endLease(scope admission.Scope, member string, back admission.Tokens) admission.Tokens {
	if back == 0 {
		return 0
	}
	all := v.held(scope)
	back = min(back, all[member].tokens)
	delete(all, member)
	return back
}

// lease leases up to what is wanted: each holder may have its part of the cap, all together the cap.
func (v *vault) lease(b buckets.LevelLimit, g *store.Grant, a *store.Account) (tokens admission.Tokens, holders int) {
	if a.Want == 0 {
		return 0, 0
	}
	all := v.held(b.Scope)
	_, mine := all[g.Member]
	others := admission.Tokens(0)
	for member, lease := range all {
		if member != g.Member {
			others += lease.tokens
			holders++
		}
	}
	if !mine && holders >= v.holders {
		return 0, holders
	}
	holders++
	tokens = v.draw(b, min(a.Want, a.Cap/admission.Tokens(holders)-a.Held, a.Cap-others-a.Held), 0.5)
	delete(all, g.Member)
	if a.Held+tokens > 0 {
		if all == nil {
			all = map[string]modelLease{}
			v.leases[b.Scope] = all
		}
		all[g.Member] = modelLease{int64(v.at) + g.Lease.Microseconds(), a.Held + tokens}
	}
	return tokens, holders
}

func (m *model) dumpLeases(add func(string, ...any)) {
	for scope, all := range m.leases {
		for member, lease := range all {
			add("lease of %s by %s %d:%d", scope, member, lease.ends, lease.tokens)
		}
	}
	for name, until := range m.limiters {
		add("limiter %s until %d", name, until)
	}
}

// leases writes what Redis holds of limiters.
func (d *redisDump) leases() {
	for key := range d.keys {
		scope, ok := strings.CutPrefix(key, "lease:")
		for member, text := range d.hash(key) {
			if ok {
				d.add("lease of %s by %s %s", scope, member, text)
			}
		}
	}
	for _, z := range d.zset("limiters") {
		d.add("limiter %s until %.0f", z.Member, z.Score)
	}
}
