package redisstore

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/internal/redistest"
	"github.com/headgate/headgate/store"
)

// TestNoCallFailsWhereRecordsAreGone: while jobs come, run, fail, are cancelled, cleared, dropped, kept aside and run again, under one policy after the other, somebody
// deletes their records. No call fails, and in the end all are accounted for.
func TestNoCallFailsWhereRecordsAreGone(t *testing.T) {
	t.Parallel()
	const steps = 80
	prefix, run := redistest.Prefix(t), 0
	client := redistest.Shared(t).Client(t)
	rapid.Check(t, func(rt *rapid.T) {
		run++
		s, err := openOnly(t.Context(), client, Config{Prefix: fmt.Sprint(prefix, run)})
		check(t, err)
		g := &goneWalk{goneYard: &goneYard{yard: &yard{tb: t, store: s, client: client, tokens: map[string]string{}}, now: ahead()}, rt: rt}
		g.pass(0)
		g.policy()
		for range steps {
			name := rapid.SampledFrom([]string{"admit", "admit", "admit", "read", "read", "finish", "finish", "register", "promote", "clear", "cancel", "reclaim", "policy", "pass", "letter", "delete"}).Draw(rt, "op")
			map[string]func(){
				"admit": g.admitSome, "read": g.readSome, "finish": g.finishSome, "register": g.registerSome, "promote": g.promote, "clear": g.clear, "cancel": g.cancel,
				"reclaim": g.reclaim, "policy": g.policy, "pass": g.passSome, "letter": g.letter, "delete": g.deleteOne,
			}[name]()
		}
		g.end()
		if keys := client.Keys(t.Context(), s.Keys().Base()+"*").Val(); len(keys) > 0 {
			check(t, client.Unlink(t.Context(), keys...).Err())
		}
	})
}

// goneWalk is one random sequence.
type goneWalk struct {
	*goneYard

	rt       *rapid.T
	version  int64
	admitted int
	held     []store.Lease
}

var (
	goneTenants   = []string{"acme", "bolt", "cole"}
	goneBy        = store.Intervention{Author: "ada"}
	goneUnlimited = &[admission.Levels]admission.Limit{}
)

func (g *goneWalk) draw(what string, most int) int { return rapid.IntRange(0, most).Draw(g.rt, what) }

// fine fails the sequence at an error.
func (g *goneWalk) fine(what string, err error) {
	if err != nil {
		g.rt.Fatalf("%s: %v", what, err)
	}
}

func (g *goneWalk) policy() {
	u := store.PolicyUpdate{Expected: g.version, Version: g.version + 1, Text: []byte("{}"), Window: time.Minute, Queues: []store.QueueSettings{{
		Queue: "mail", Classes: admission.DefaultClasses(), Horizon: time.Hour, MaxDead: 5, KeepDead: time.Hour, PoisonLimit: 2, DropExpired: g.draw("drop", 1) == 0,
		Overflow: []store.Overflow{
			{}, {Policy: store.Spillover, MaxJobs: 4, MaxSpilled: 100, LowWater: 100}, {Policy: store.DropOldest, MaxJobs: 6}, {Policy: store.Reject, MaxJobs: 8},
		}[g.draw("overflow", 3)],
	}}}
	if g.draw("capped", 1) == 0 {
		u.Caps = []store.Cap{{Gate: store.DownstreamGate("api"), Limit: 1 + g.draw("cap", 2)}, {Gate: store.TenantGate(store.Every), Limit: 2}}
	}
	g.fine("policy", g.store.PutPolicy(g.tb.Context(), u))
	g.version++
}

func (g *goneWalk) admitSome() {
	var jobs []store.Candidate
	for range 1 + g.draw("jobs", 7) {
		g.admitted++
		j := mail(rapid.SampledFrom(goneTenants).Draw(g.rt, "tenant"), fmt.Sprint("j", g.admitted))
		if g.draw("dated", 2) == 0 {
			j.Deadline = time.UnixMicro(g.now).Add(time.Duration(1+g.draw("deadline", 19)) * time.Second)
		}
		if g.draw("later", 3) == 0 {
			j.Delay = time.Second
		}
		j.Downstream = rapid.SampledFrom([]string{"", "", "api", "db"}).Draw(g.rt, "downstream")
		if g.draw("unique", 7) == 0 {
			j.Unique = admission.Unique{Key: fmt.Sprint("k", g.draw("key", 2)), For: time.Hour, Release: admission.ReleaseAtEnd}
		}
		if g.draw("large", 9) == 0 {
			j.Payload = make([]byte, store.LargePayload+1)
		}
		jobs = append(jobs, store.Candidate{Job: &j, Class: g.draw("class", 2), Limits: goneUnlimited})
	}
	_, err := g.store.Admit(g.tb.Context(), g.version, jobs)
	g.fine("admit", err)
}

func (g *goneWalk) readSome() {
	leases, err := g.store.Read(g.tb.Context(), "w1", yardPool.ID(), 4, -1, false)
	if err == nil { // else there is no pool
		g.held = append(g.held, leases...)
	}
}

func (g *goneWalk) finishSome() {
	n := min(len(g.held), 3)
	ends := make([]store.Finish, n)
	for i, l := range g.held[:n] {
		outcomes := []store.Outcome{store.Complete, store.Retry, store.Kill, store.Release, store.Expire}
		ends[i] = l.Finish(outcomes[g.draw("outcome", 4)])
		if ends[i].Reason = "discarded"; l.Err != nil {
			ends[i].Outcome, ends[i].Reason = store.Kill, "record_gone"
		}
	}
	if g.held = g.held[n:]; n > 0 {
		_, _, err := g.store.Finish(g.tb.Context(), yardPool.ID(), "w1", ends)
		g.fine("finish", err)
	}
}

func (g *goneWalk) registerSome() {
	_, err := g.store.Register(g.tb.Context(), "w1", yardPool, g.draw("slots", 5), 30*time.Second)
	g.fine("register", err)
}

func (g *goneWalk) promote() {
	_, err := g.store.Promote(g.tb.Context(), "s", time.Second)
	g.fine("promote", err)
}

func (g *goneWalk) clear() {
	_, _, err := g.store.ClearTenant(g.tb.Context(), rapid.SampledFrom(goneTenants).Draw(g.rt, "tenant"), "mail", goneBy)
	g.fine("clear", err)
}

func (g *goneWalk) cancel() {
	key := admission.Key{Tenant: rapid.SampledFrom(goneTenants).Draw(g.rt, "tenant"), ID: fmt.Sprint("j", 1+g.draw("number", g.admitted))}
	if _, _, err := g.store.Cancel(g.tb.Context(), key, goneBy); !errors.Is(err, admission.ErrEnded) && !errors.Is(err, admission.ErrUnknownJob) {
		g.fine("cancel", err)
	}
}

func (g *goneWalk) reclaim() {
	_, err := g.store.Reclaim(g.tb.Context(), "w1")
	g.fine("reclaim", err)
	g.held = nil
}

func (g *goneWalk) passSome() { g.pass(time.Duration(g.draw("seconds", 39)) * time.Second) }

// letter purges a dead letter, or runs it again, whose record may go just before.
func (g *goneWalk) letter() {
	deaths, err := g.store.Deaths(g.tb.Context(), time.Time{}, 0)
	g.fine("deaths", err)
	if len(deaths) == 0 {
		return
	}
	key, err := deaths[g.draw("letter", len(deaths)-1)].Key()
	g.fine("key", err)
	if g.draw("purge", 1) == 0 {
		_, err := g.store.Purge(g.tb.Context(), []admission.Key{key}, goneBy)
		g.fine("purge", err)
		return
	}
	letters, err := g.store.Letters(g.tb.Context(), []admission.Key{key})
	g.fine("letters", err)
	again, err := letters[0].Redrive(letters[0].Record.Class, goneUnlimited)
	if err != nil {
		return // Its record has gone before.
	}
	if g.draw("goes", 2) == 0 {
		check(g.tb, g.client.HDel(g.tb.Context(), g.store.Keys().Jobs(), key.String()).Err())
	}
	_, err = g.store.Admit(g.tb.Context(), g.version, []store.Candidate{again})
	g.fine("run again", err)
}

func (g *goneWalk) deleteOne() {
	fields, err := g.client.HKeys(g.tb.Context(), g.store.Keys().Jobs()).Result()
	check(g.tb, err)
	if len(fields) == 0 {
		return
	}
	slices.Sort(fields)
	check(g.tb, g.client.HDel(g.tb.Context(), g.store.Keys().Jobs(), fields[g.draw("field", len(fields)-1)]).Err())
}

// end lets all jobs end, and asserts that they have. What is kept aside is cleared: of what counted, and was deleted while it waited for a time, nobody knows in which
// depth it did, so it keeps that from coming back.
func (g *goneWalk) end() {
	settled := func(c store.Census) bool { return c.Waiting+c.Later+c.Ready == 0 }
	for range 100 {
		_, err := g.store.Register(g.tb.Context(), "w1", yardPool, 16, 30*time.Second)
		g.fine("register", err)
		g.readSome()
		for i := range g.held {
			g.goneYard.end(g.held[i], store.Complete)
		}
		g.held = nil
		g.pass(2 * time.Minute)
		g.promoteAll()
		if settled(g.census()) {
			break
		}
	}
	for _, tenant := range goneTenants {
		_, _, err := g.store.ClearTenant(g.tb.Context(), tenant, "mail", goneBy)
		g.fine("clear", err)
	}
	g.pass(2 * time.Hour)
	g.promoteAll()
	if c := g.census(); !settled(c) || c.Live != 0 || !c.Conserved() {
		g.rt.Fatalf("in the end: %+v", c)
	}
}

func (g *goneWalk) census() store.Census {
	c, err := g.store.Census(g.tb.Context())
	g.fine("census", err)
	return c
}
