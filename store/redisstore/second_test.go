package redisstore

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/internal/redistest"
	"github.com/headgate/headgate/store"
)

// pair is a yard with a second Redis of its own, which a test may end.
type pair struct {
	*yard
	server *redistest.Server
	there  *redis.Client
	mover  store.Mover
}

// The bound of the tenant acme in the queue mail of a pair.
const (
	pairJobs    = 2
	pairSpilled = 8
	pairMoved   = 100
)

func newPair(t *testing.T) *pair {
	t.Helper()
	return newPairBy(t, redistest.Start(t, redistest.Options{AppendFsync: "always"}), "")
}

// newPairBy is newPair with a second Redis that is there, which may be reached by another address.
func newPairBy(t *testing.T, server *redistest.Server, addr string) *pair {
	t.Helper()
	client := redistest.Shared(t).Client(t)
	if addr == "" {
		addr = server.Addr()
	}
	s, err := openOnly(t.Context(), client, Config{Prefix: redistest.Prefix(t), Second: addr})
	check(t, err)
	t.Cleanup(func() { _ = s.second.Close() })
	p := &pair{yard: &yard{tb: t, store: s, client: client, tokens: map[string]string{}}, server: server, there: server.Client(t)}
	p.mover = s.NewMover("m1")
	p.bound(1, store.Overflow{Policy: store.Spillover, MaxJobs: pairJobs, MaxSpilled: pairSpilled, MaxMoved: pairMoved, LowWater: 50})
	return p
}

// bound puts a bound in force for the tenant acme in the queue mail.
func (p *pair) bound(version int64, o store.Overflow) {
	p.tb.Helper()
	check(p.tb, p.store.PutPolicy(p.tb.Context(), store.PolicyUpdate{
		Expected: version - 1, Version: version, Text: []byte("{}"), Window: time.Minute, Overflows: []store.TenantOverflow{{Tenant: "acme", Queue: "mail", Overflow: o}},
	}))
}

// move moves until nothing is left to be moved, and returns what that came to. The second Redis writes to the disk before it answers, which on a busy
// one takes longer than its client waits: then it comes again, as a scheduler does.
func (p *pair) move() (all store.Moves) {
	p.tb.Helper()
	for range 1000 {
		m, err := p.mover.Move(p.tb.Context())
		check(p.tb, err)
		if late, ok := errors.AsType[net.Error](m.Trouble); ok && late.Timeout() {
			continue
		}
		all.Out, all.Back, all.Dropped, all.Missing = all.Out+m.Out, all.Back+m.Back, all.Dropped+m.Dropped, all.Missing+m.Missing
		all.Trouble = m.Trouble
		if !m.More {
			return all
		}
	}
	p.tb.Fatal("there is ever more to be moved")
	return all
}

// moverJob is the nth job: some have a payload that does not fit into a record.
func moverJob(n int) admission.Job {
	j := mail("acme", fmt.Sprintf("job-%03d", n))
	j.Headers = map[string]string{"n": strconv.Itoa(n)}
	j.Payload = bytes.Repeat([]byte{byte(n)}, 100)
	if n%5 == 0 {
		j.Payload = bytes.Repeat([]byte{byte(n)}, 3*store.LargePayload)
	}
	return j
}

// enter lets so many jobs in, and moves whenever there is no more room.
func (p *pair) enter(n int) {
	p.tb.Helper()
	for i := range n {
		v := p.offerAt(1, moverJob(i))
		if v.Decision == admission.Refused && v.Reason == admission.ReasonOverflow {
			check(p.tb, p.move().Trouble)
			v = p.offerAt(1, moverJob(i))
		}
		check(p.tb, v.Err())
	}
}

// sum asserts what both have: the books of the first, and that the second has a body for each that counts and no more but copies that are
// to be dropped.
func (p *pair) sum() (store.Census, store.SpillState) {
	p.tb.Helper()
	c, err := p.store.Census(p.tb.Context())
	check(p.tb, err)
	s, err := p.store.SpillState(p.tb.Context())
	check(p.tb, err)
	if !c.Conserved() || c.SpilledAway != s.Away || s.Held < s.Away || s.Held > s.Away+s.Copies {
		p.tb.Errorf("law L4 over both: %+v, %+v", c, s)
	}
	return c, s
}

// runAll runs all jobs and returns what was run, in order.
func (p *pair) runAll(n int) (ran []store.Lease) {
	p.tb.Helper()
	p.register(1)
	for deadline := time.Now().Add(time.Minute); len(ran) < n; {
		leases, err := p.store.Read(p.tb.Context(), "w1", yardPool.ID(), 4, -1, false)
		check(p.tb, err)
		for _, l := range leases {
			check(p.tb, l.Err)
			ran = append(ran, l)
			p.tokens[l.Job.ID] = l.Token
			p.finish(l.Job.ID, store.Finish{Outcome: store.Complete})
		}
		p.promoteAll()
		if len(leases) == 0 {
			p.move()
		}
		if time.Now().After(deadline) {
			p.tb.Fatalf("%d of %d jobs ran", len(ran), n)
		}
	}
	return ran
}

// TestSpilledJobsGoToTheSecondRedisAndComeBackInOrder: each runs once, whole and in the order of arrival, and what is away is seen like any other.
func TestSpilledJobsGoToTheSecondRedisAndComeBackInOrder(t *testing.T) {
	t.Parallel()
	const jobs = 60
	p := newPair(t)
	p.enter(jobs)
	c, s := p.sum()
	if s.Away < jobs-pairJobs-pairSpilled || c.Spilled != jobs-pairJobs {
		t.Fatalf("of %d jobs are spilled %d, away %+v", jobs, c.Spilled, s)
	}
	away := moverJob(20)
	if v := p.offerAt(1, away); v.Decision != admission.Duplicate {
		t.Errorf("a job that is away, sent again: %+v", v)
	}
	sight := p.look(away.ID)
	if sight.Place != admission.PlaceSpilled || !sight.Record.Away || sight.Position != 20-pairJobs+1 || sight.Record.Job.Type != "welcome" {
		t.Errorf("it is seen as %+v", sight)
	}
	payload, err := p.store.Payload(t.Context(), sight.Key)
	if err != nil || !bytes.Equal(payload, away.Payload) {
		t.Errorf("its payload of %d bytes is read as %d, %v", len(away.Payload), len(payload), err)
	}
	if n := p.client.Exists(t.Context(), p.store.Keys().Large("acme:"+away.ID)).Val(); n != 0 {
		t.Error("its payload is in both")
	}
	page, err := p.store.List(t.Context(), store.ListQuery{Place: admission.PlaceSpilled, Limit: 100})
	if check(t, err); len(page.Jobs) != jobs-pairJobs {
		t.Errorf("%d of %d spilled jobs are listed", len(page.Jobs), jobs-pairJobs)
	}
	for i, l := range p.runAll(jobs) {
		want := moverJob(i)
		if l.Job.ID != want.ID || !bytes.Equal(l.Job.Payload, want.Payload) || l.Job.Headers["n"] != want.Headers["n"] {
			t.Fatalf("as %dth runs %s with %d bytes and headers %v, want %s", i, l.Job.ID, len(l.Job.Payload), l.Job.Headers, want.ID)
		}
	}
	p.move()
	if c, s = p.sum(); c.Left["completed"] != jobs || s.Away+s.Copies+s.Held != 0 {
		t.Errorf("in the end %+v, %+v", c, s)
	}
	if n := p.there.HLen(t.Context(), p.store.Keys().Base()+"second:payloads").Val(); n != 0 {
		t.Errorf("the second Redis still has %d payloads", n)
	}
}

// TestARefusalSaysWhyNothingMoves: nobody moves, the second Redis is away, it has as many as it may.
func TestARefusalSaysWhyNothingMoves(t *testing.T) {
	t.Parallel()
	p := newPair(t)
	fill := func() admission.Verdict {
		for n := range 2 * (pairMoved + pairSpilled) {
			if v := p.offerAt(1, moverJob(n)); v.Decision == admission.Refused {
				return v
			}
		}
		t.Fatal("there is no end of what is let in")
		return admission.Verdict{}
	}
	refused := func(want string) {
		t.Helper()
		if v := fill(); v.Reason != admission.ReasonOverflow || !strings.HasSuffix(v.Detail, want) {
			t.Errorf("refused for %s, %q, want %q", v.Reason, v.Detail, want)
		}
	}
	refused("nobody moves those kept aside to the second Redis")
	p.server.Stop(t)
	if m := p.move(); m.Trouble == nil {
		t.Error("a second Redis that is away troubles nobody")
	}
	refused("the second Redis is away or takes no more")
	p.server.Restart(t)
	p.move()
	p.move() // The call after one that went well says so.
	for range pairMoved {
		p.move()
		fill()
	}
	refused("the second Redis has as many as max_moved")
	c, s := p.sum()
	if s.Away != pairMoved || c.Spilled != pairMoved+pairSpilled {
		t.Errorf("%d jobs are away, %d spilled", s.Away, c.Spilled)
	}
}

// TestWhileTheSecondRedisIsAwayNothingIsLost: what is in the first runs, what is in the second waits for it.
func TestWhileTheSecondRedisIsAwayNothingIsLost(t *testing.T) {
	t.Parallel()
	const jobs = 40
	p := newPair(t)
	p.enter(jobs)
	_, before := p.sum()
	p.server.Kill(t)
	p.register(4)
	for ran := 0; ran < jobs-int(before.Away); {
		leases, err := p.store.Read(t.Context(), "w1", yardPool.ID(), 1, -1, false)
		check(t, err)
		if len(leases) == 0 {
			if p.promoteAll() == 0 {
				break
			}
		}
		for _, l := range leases {
			p.tokens[l.Job.ID] = l.Token
			p.finish(l.Job.ID, store.Finish{Outcome: store.Complete})
			ran++
		}
		m, err := p.mover.Move(t.Context())
		if check(t, err); m.Trouble == nil || m.Out+m.Back > 0 {
			t.Fatalf("with the second Redis away: %+v", m)
		}
	}
	c, err := p.store.Census(t.Context())
	if check(t, err); !c.Conserved() || c.SpilledAway != before.Away || c.Left["completed"] == 0 {
		t.Errorf("meanwhile %+v, %d were away", c, before.Away)
	}
	done := int(c.Left["completed"])
	p.server.Restart(t)
	p.runAll(jobs - done)
	p.move()
	if c, s := p.sum(); c.Left["completed"] != jobs || s.Held != 0 {
		t.Errorf("in the end %+v, %+v", c, s)
	}
}

// TestAJobThatIsAwayIsCancelledInTheFirst: its copy goes with the next portion.
func TestAJobThatIsAwayIsCancelledInTheFirst(t *testing.T) {
	t.Parallel()
	p := newPair(t)
	p.enter(30)
	_, before := p.sum()
	_, _, err := p.store.Cancel(t.Context(), admission.Key{Tenant: "acme", ID: moverJob(20).ID}, store.Intervention{Author: "op"})
	check(t, err)
	c, s := p.sum()
	if c.Left["cancelled"] != 1 || s.Away != before.Away-1 || s.Copies != before.Copies+1 || p.look(moverJob(20).ID).Place != store.PlaceEnded {
		t.Errorf("cancelled: %+v, %+v, before %+v", c, s, before)
	}
	p.move()
	if _, s = p.sum(); s.Copies != 0 || s.Held != s.Away {
		t.Errorf("after the next portion: %+v", s)
	}
	n, _, err := p.store.ClearTenant(t.Context(), "acme", "mail", store.Intervention{Author: "op"})
	check(t, err)
	p.move()
	if c, s = p.sum(); n != 29 || c.Live != 0 || s.Held != 0 {
		t.Errorf("%d cleared, then %+v, %+v", n, c, s)
	}
}

// TestAJobWhoseDeadlinePassesInTheSecondRedisIsAWholeDeadLetter.
func TestAJobWhoseDeadlinePassesInTheSecondRedisIsAWholeDeadLetter(t *testing.T) {
	t.Parallel()
	p := newPair(t)
	p.enter(20)
	j := moverJob(20)
	j.Deadline = time.Now().Add(300 * time.Millisecond)
	check(t, p.offerAt(1, j).Err())
	p.move()
	if !p.look(j.ID).Record.Away {
		t.Fatal("it is not away")
	}
	for deadline := time.Now().Add(10 * time.Second); p.look(j.ID).Place != store.PlaceDead; {
		p.promoteAll()
		p.move()
		if time.Now().After(deadline) {
			t.Fatalf("it does not expire: %+v", p.look(j.ID))
		}
	}
	sight := p.look(j.ID)
	payload, err := p.store.Payload(t.Context(), sight.Key)
	if sight.Reason != "expired" || err != nil || !bytes.Equal(payload, j.Payload) {
		t.Errorf("it died as %q, and its payload of %d bytes is read as %d, %v", sight.Reason, len(j.Payload), len(payload), err)
	}
	p.sum()
}

// TestWithoutSpillToAllComesBack, and then the deployment may be migrated.
func TestWithoutSpillToAllComesBack(t *testing.T) {
	t.Parallel()
	p := newPair(t)
	p.enter(50)
	p.bound(2, store.Overflow{Policy: store.Spillover, MaxJobs: pairJobs, MaxSpilled: pairSpilled, LowWater: 50})
	p.move()
	if c, s := p.sum(); c.Spilled != 50-pairJobs || s.Away+s.Copies+s.Held != 0 {
		t.Errorf("%+v, %+v", c, s)
	}
}

// TestASecondRedisOfSomebodyElseIsLeftAlone, and so is one that has lost all.
func TestASecondRedisOfSomebodyElseIsLeftAlone(t *testing.T) {
	t.Parallel()
	p := newPair(t)
	p.enter(30)
	trouble := func(p *pair, want string) {
		t.Helper()
		if m := p.move(); m.Trouble == nil || !strings.Contains(m.Trouble.Error(), want) || m.Out+m.Back+m.Dropped+m.Missing > 0 {
			t.Errorf("%+v, want trouble with %q", m, want)
		}
	}
	_, before := p.sum()
	of := p.store.Keys().Base() + "second:of"
	check(t, p.there.HSet(t.Context(), of, "deployment", "another").Err())
	trouble(p, "another deployment")
	check(t, p.there.FlushDB(t.Context()).Err())
	trouble(p, "knows nothing of this deployment")
	if c, err := p.store.Census(t.Context()); err != nil || !c.Conserved() || c.SpilledAway != before.Away {
		t.Errorf("%+v, %v", c, err)
	}
}

// TestABodyThatTheSecondRedisHasLostIsCounted: its job leaves as record_gone, and does not hold up those behind.
func TestABodyThatTheSecondRedisHasLostIsCounted(t *testing.T) {
	t.Parallel()
	const jobs = 30
	p := newPair(t)
	p.enter(jobs)
	sight := p.look(moverJob(15).ID)
	name := fmt.Sprintf("%d acme:%s", sight.Record.Seq, moverJob(15).ID)
	if n := p.there.HDel(t.Context(), p.store.Keys().Base()+"second:records", name).Val(); n != 1 {
		t.Fatal("it is not there")
	}
	p.runAll(jobs - 1)
	c, err := p.store.Census(t.Context())
	if check(t, err); !c.Conserved() || c.Left["completed"] != jobs-1 || c.Left["record_gone"] != 1 {
		t.Errorf("%+v", c)
	}
}

// TestACommandOfAnEarlierMoverComesTooLate: one that was lost, or so it seemed, neither puts a copy where nobody knows of it nor deletes one that
// counts, whenever it arrives.
func TestACommandOfAnEarlierMoverComesTooLate(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, redistest.Options{})
	for what, play := range map[string]func(p *pair, lose func()){
		// A copy is put once its job has left.
		"put": func(p *pair, lose func()) {
			for n := 20; p.offerAt(1, moverJob(n)).Decision == admission.Admitted; n++ {
			}
			lose()
			_, _, err := p.store.ClearTenant(t.Context(), "acme", "mail", store.Intervention{Author: "op"})
			check(t, err)
		},
		// A copy is dropped that came back and has gone out again.
		"drop": func(p *pair, lose func()) {
			p.bound(2, store.Overflow{Policy: store.Spillover, MaxJobs: pairJobs, MaxSpilled: pairSpilled, LowWater: 50})
			lose()
			p.bound(3, store.Overflow{Policy: store.Spillover, MaxJobs: pairJobs, MaxSpilled: pairSpilled, MaxMoved: pairMoved, LowWater: 50})
		},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			proxy := redistest.NewProxy(t, server.Addr())
			p := newPairBy(t, server, proxy.Addr())
			p.enter(20)
			p.move()
			var lost []any
			play(p, func() {
				proxy.Decide(func(c redistest.Command) redistest.Action {
					if lost != nil || !c.IsScript() || len(c.Args) < 8 || !strings.Contains(c.Args[7], " acme:") {
						return redistest.Action{}
					}
					lost = append(lost, c.Name)
					for _, arg := range c.Args {
						lost = append(lost, arg)
					}
					return redistest.Action{Cut: redistest.CutBefore}
				})
				for p.move().Trouble == nil {
				}
			})
			p.move()
			p.move()
			_, before := p.sum()
			reply, err := p.there.Do(t.Context(), lost...).StringSlice()
			if err != nil || reply[0] != "stale" {
				t.Errorf("it is answered %v, %v", reply, err)
			}
			if _, after := p.sum(); after.Held != before.Held {
				t.Errorf("the second Redis held %d bodies before it, %d after it", before.Held, after.Held)
			}
		})
	}
}

// TestWithoutASecondRedisNobodyMoves: a process that has none says so of a body that is there.
func TestWithoutASecondRedisNobodyMoves(t *testing.T) {
	t.Parallel()
	p := newPair(t)
	p.enter(30)
	alone, err := openOnly(t.Context(), p.client, Config{Prefix: p.store.config.Prefix})
	check(t, err)
	if alone.NewMover("m") != nil {
		t.Error("it moves")
	}
	if _, err := alone.Payload(t.Context(), admission.Key{Tenant: "acme", ID: moverJob(20).ID}); !errors.Is(err, store.ErrAway) {
		t.Errorf("payload: %v", err)
	}
	if s, err := alone.SpillState(t.Context()); err != nil || s.Away == 0 || s.Held != -1 {
		t.Errorf("%+v, %v", s, err)
	}
}
