package redisstore

import (
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"pgregory.net/rapid"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/breaker"
	"github.com/headgate/headgate/fairqueue"
	"github.com/headgate/headgate/internal/redisconn"
	"github.com/headgate/headgate/internal/redistest"
	"github.com/headgate/headgate/lua"
	"github.com/headgate/headgate/store"
)

// Random operations of a sequence. Two halves of 50 sequences run side by side, so that a run has 8,000 and 2,500 steps.
const (
	conformanceSteps  = 80
	clusterSteps      = 25
	conformanceHalves = 2
	halfChecks        = "50"
	// Bounds of one half, low enough to be met in a short sequence: dead letters, passed tags that a call forgets, holders of a lease,
	// and gates that a command writes.
	fewDead    = 4
	fewPassed  = 1
	fewHolders = 1
	fewGates   = 2
	// fewQuiet is after how long a breaker is forgotten of which nothing is heard.
	fewQuiet = 15 * time.Second
)

// fewMoves are how many moves a call may make in that half.
var fewMoves = []int{3, 5, 8}

// TestScriptsEqualTheModel sends random operations through the Go model and the scripts and compares verdicts,
// levels, orders, tags, timers and counters after each, and asserts laws L4, L7 and W.
func TestScriptsEqualTheModel(t *testing.T) {
	t.Parallel()
	conformHalves(t, redistest.Shared(t), "", conformanceSteps)
}

// TestScriptsStayInTheirSlot runs the same on a one-node cluster with #!lua, which refuses any undeclared slot.
func TestScriptsStayInTheirSlot(t *testing.T) {
	t.Parallel()
	conformHalves(t, redistest.SharedCluster(t), "#!lua flags=allow-oom\n", clusterSteps)
}

func conformHalves(t *testing.T, server *redistest.Server, preamble string, steps int) {
	t.Helper()
	for half := range conformanceHalves {
		t.Run(strconv.Itoa(half), func(t *testing.T) {
			t.Parallel()
			conform(t, server, preamble, steps, half == 1)
		})
	}
}

func conform(t *testing.T, server *redistest.Server, preamble string, steps int, few bool) {
	t.Helper()
	client := server.Client(t)
	scripts := map[int]lua.Library{fairqueue.Moves: maps.Clone(lua.Scripts(preamble, lua.SingleLayout))}
	if few {
		clear(scripts)
		for _, moves := range fewMoves {
			scripts[moves] = lowered(t, preamble, moves)
		}
	}
	run := 0
	prefix := redistest.Prefix(t)
	rapid.Check(t, func(rt *rapid.T) {
		run++
		s, err := newStore(client, Config{Prefix: prefix + strconv.Itoa(run)}, preamble)
		check(t, err)
		w := newWalk(t, rt, s)
		moves := fairqueue.Moves
		if few {
			moves = pick(w, "moves", fewMoves)
			w.model.deadCap, w.model.quiet, w.model.holders = fewDead, fewQuiet, fewHolders
		}
		w.model.moves, s.conn.Scripts = moves, scripts[moves]
		defer w.clean()
		for range steps {
			w.step()
		}
		w.assertConserved()
		w.assertQuiet()
	})
}

// lowered returns scripts of few moves a call, with other bounds low too.
func lowered(t *testing.T, preamble string, moves int) lua.Library {
	t.Helper()
	scripts := maps.Clone(lua.Scripts(preamble, lua.SingleLayout))
	for _, bound := range []struct {
		where    string
		from, to int
	}{
		{"local MOVES = %d\n", fairqueue.Moves, moves},
		{"local QUIET = %d\n", int(breaker.Quiet.Microseconds()), int(fewQuiet.Microseconds())},
		{"local DEAD_CAP = %d\n", modelDeadCap, fewDead},
		{"local HOLDERS = %d\n", modelHolders, fewHolders},
		{"local GATES_AT_ONCE = %d ", 1000, fewGates},
		{"format('%%.17g', V), 'LIMIT', 0, %d)\n", 16, fewPassed},
	} {
		lower(t, scripts, bound.where, bound.from, bound.to)
	}
	return scripts
}

// lower changes a bound where it stands in the scripts.
func lower(t *testing.T, scripts lua.Library, where string, from, to int) {
	t.Helper()
	found := false
	for name, assembled := range scripts {
		text := strings.ReplaceAll(assembled().Text, fmt.Sprintf(where, from), fmt.Sprintf(where, to))
		found = found || text != assembled().Text
		scripts[name] = sync.OnceValue(func() lua.Script { return lua.NewScript(text) })
	}
	if !found {
		t.Fatalf("no script has "+where, from)
	}
}

// walk is one random sequence.
type walk struct {
	tb    testing.TB
	rt    *rapid.T
	ctx   context.Context //nolint:containedctx // the test's own, for every step
	store *Partition
	model *model
	now   int64
	// back is by how much the clock was set back since promote last armed timers anew, in microseconds.
	back   int64
	scopes map[admission.Scope]bool
	pools  []store.Pool
	// gates are "all" kinds, those of a tenant and its lanes where few slots are ("lanes"), "breakers" alone, the same beside jobs that
	// come alone and own nothing ("lone"), or "none".
	gates string
	// held are the leases that workers have read, by worker.
	held    map[string][]store.Finish
	stale   []store.Finish
	limits  [3][admission.Levels]admission.Limit
	version int64
	// sequence numbers reports of outcomes.
	sequence uint64
	weights  map[string]admission.Weight
	takings  []taking
	service  *serviceLog
	log      []string
	// resend is the step's script call once more, word for word: what a client does whose reply was lost.
	resend func()
}

var (
	walkTenants     = []string{"ann", "bob", "cy", "dot", "eve"}
	walkQueues      = []string{"mail", "hook"}
	walkDownstreams = []string{"", "", "api", "db"}
	walkPools       = []store.Pool{
		{Queues: []store.QueueWeight{{Queue: "mail", Weight: 2}, {Queue: "hook", Weight: 1}}},
		{Queues: []store.QueueWeight{{Queue: "hook", Weight: 1}, {Queue: "mail", Weight: 1}}, Strict: true},
		{Queues: []store.QueueWeight{{Queue: "mail", Weight: 1}}},
	}
)

func newWalk(tb testing.TB, rt *rapid.T, s *Partition) *walk {
	tb.Helper()
	w := &walk{
		tb: tb, rt: rt, ctx: tb.Context(), store: s, model: newModel(), scopes: map[admission.Scope]bool{admission.Global: true},
		now: time.Now().Add(24 * time.Hour).UnixMicro(), held: map[string][]store.Finish{}, weights: map[string]admission.Weight{},
	}
	w.service = newServiceLog(w.model.room)
	// Scripts have shorter ways for one pool of one queue, and without gates.
	w.pools, w.gates = pick(w, "pools", [][]store.Pool{walkPools, walkPools, walkPools[2:]}), pick(w, "gates", []string{"all", "all", "lanes", "breakers", "lone", "none"})
	for _, tenant := range walkTenants {
		for level := admission.LevelTenant; level < admission.Levels; level++ {
			for _, queue := range walkQueues {
				for _, c := range admission.DefaultClasses() {
					w.scopes[admission.ScopeAt(level, tenant, queue, c.Name)] = true
				}
			}
		}
	}
	w.drawLimits()
	w.model.room.Weight = func(class admission.Priority, tenant string) admission.Weight {
		if weight, ok := w.weights[string(class)+":"+tenant]; ok {
			return weight
		}
		if weight, ok := w.weights[string(class)+":"]; ok {
			return weight
		}
		return 1
	}
	return w
}

func (w *walk) clean() {
	const erase = `for _, k in ipairs(redis.call('KEYS', ARGV[1] .. '*')) do redis.call('DEL', k) end`
	err := redisconn.Client(w.store.conn).Eval(w.ctx, w.store.conn.Preamble+erase, []string{w.store.conn.Partition.State()}, w.store.conn.Partition.Base()).Err()
	if !errors.Is(err, redis.Nil) {
		check(w.tb, err)
	}
}

func pick[T any](w *walk, name string, from []T) T { return rapid.SampledFrom(from).Draw(w.rt, name) }

func (w *walk) number(name string, low, high int) int {
	return rapid.IntRange(low, high).Draw(w.rt, name)
}

func (w *walk) step() {
	w.tick()
	before := w.service.begin()
	ops := []string{ // rapid draws the first more often
		"gate", "finish", "admit", "gate", "read", "admit", "admit", "admit", "read", "finish", "finish", "register",
		"promote", "promote", "register", "heartbeat", "reclaim", "policy", "orphan",
		"cancel", "clear", "purge", "suspend", "start", "check", "take", "refund", "grant", "grant", "report", "report", "report", "force",
	}
	if w.gates == "lanes" {
		ops = []string{"cancel", "admit", "gate", "promote", "read", "finish", "register"}
	}
	ops = slices.DeleteFunc(ops, func(op string) bool {
		return op == "gate" && w.gates != "all" && w.gates != "lanes" || w.gates == "lone" && (op == "policy" || op == "orphan" || op == "suspend") || (op == "report" || op == "force") && w.gates == "none"
	})
	op := pick(w, "op", ops)
	w.log = append(w.log, op)
	w.resend = nil
	switch op {
	case "admit":
		w.admit()
	case "read":
		w.read()
	case "finish":
		w.finish()
	case "register":
		w.register()
	case "heartbeat":
		w.heartbeat()
	case "reclaim":
		w.reclaim()
	case "promote":
		w.promote()
	case "gate":
		w.gate()
	case "policy":
		w.policy()
	case "orphan":
		w.orphan()
	case "cancel":
		w.cancel()
	case "clear":
		w.clear()
	case "purge":
		w.purge()
	case "suspend":
		w.suspend()
	case "check":
		w.check()
	case "grant":
		w.grant()
	case "take":
		w.take()
	case "refund":
		w.refund()
	case "start":
		w.start()
	case "report":
		w.report()
	case "force":
		w.force()
	}
	w.compare(op)
	if w.resend != nil && w.number("resend", 0, 3) == 0 {
		w.resend()
		w.compare(op + " and its resend")
	}
	w.assertWakeUp(op)
	if err := w.service.end(before); err != nil {
		w.rt.Fatalf("after %s: %v", op, err)
	}
}

// tick moves the clock: mostly a little, sometimes a lot, sometimes back.
func (w *walk) tick() {
	switch w.number("tick", 0, 19) { // rapid draws low numbers more often
	case 14, 15, 16, 17:
		w.now += int64(w.number("leap", 1, 40)) * 1_000_000
	case 18:
		back := int64(w.number("back", 1, 12)) * 1_000_000
		w.now, w.back = w.now-back, w.back+back
	default:
		w.now += int64(w.number("us", 0, 400_000))
	}
	w.store.conn.Now = strconv.FormatInt(w.now, 10)
}

func (w *walk) drawLimits() {
	for i := range w.limits {
		for level := range w.limits[i] {
			l := admission.Limit{Disabled: w.number("limited", 0, 2) > 0}
			if !l.Disabled {
				l = admission.Limit{
					Tokens: admission.Tokens(w.number("tokens", 1, 40)), Burst: admission.Tokens(w.number("burst", 1, 60)),
					Per: pick(w, "per", []time.Duration{time.Second, 700 * time.Millisecond, time.Minute, 24 * time.Hour}),
				}
			}
			w.limits[i][level] = l
		}
	}
	for i := range w.limits { // one global limit a call
		w.limits[i][admission.LevelGlobal] = w.limits[0][admission.LevelGlobal]
	}
}

var digestSeed = maphash.MakeSeed()

// digest sums the hashes of lines, whatever their order.
func digest(lines []string) (sum uint64) {
	for _, line := range lines {
		sum += maphash.String(digestSeed, line)
	}
	return sum
}

func (w *walk) compare(op string) {
	if diff := w.differences(); diff != nil {
		w.rt.Fatalf("after %s at %d (%s):\n%s", op, w.now, strings.Join(w.log, " "), strings.Join(diff, "\n"))
	}
}

// differences returns the lines that only one of the two has, Redis or the model.
func (w *walk) differences() (diff []string) {
	gotLines, wantLines := dumpRedis(w.ctx, w.tb, w.store), w.model.dump(w.scopes)
	if digest(gotLines) == digest(wantLines) {
		return nil
	}
	for _, line := range gotLines {
		if !slices.Contains(wantLines, line) {
			diff = append(diff, "redis "+line)
		}
	}
	for _, line := range wantLines {
		if !slices.Contains(gotLines, line) {
			diff = append(diff, "model "+line)
		}
	}
	slices.SortFunc(diff, func(a, b string) int { return strings.Compare(a[6:], b[6:]) })
	return diff
}

// assertWakeUp asserts law W: no pool has room while a job could run in it, and none has more that nobody has read than it has slots
// for, unless a timer that stands as near as a script puts it continues the work.
func (w *walk) assertWakeUp(op string) {
	room := w.model.room
	if w.model.leapt != 0 || w.now != w.model.last {
		return // promote has yet to bring timers near that an old clock put far ahead, or no script has seen this one.
	}
	continues := func(timer string) bool {
		at, ok := room.Timers[timer]
		return ok && at <= w.now+w.back+fairqueue.ContinueAfter
	}
	for name := range room.Timers {
		gone := room.Gates[name[1:]] == nil && name[1] != 'h' // Of those that are gone nobody keeps a list to look at again.
		if name[0] == 'k' && (continues(name) || gone) {
			return
		}
	}
	for _, p := range room.Pools {
		if continues("f" + p.ID) {
			continue
		}
		unread := slices.ContainsFunc(p.Ready, func(e *fairqueue.Entry) bool { return e.Worker == "" })
		if len(p.Ready) > p.Slots && unread {
			w.rt.Fatalf("after %s: pool %s has %d slots, and jobs that nobody has read\n%s", op, p.ID, p.Slots, room.Dump())
		}
		if len(p.Ready) >= p.Slots {
			continue
		}
		if key, ok := room.CouldRun(p.Queues, w.now); ok {
			w.rt.Fatalf("law W after %s: pool %s has room for %s\n%s", op, p.ID, key, room.Dump())
		}
	}
}

// assertConserved asserts law L4 by what Redis holds.
func (w *walk) assertConserved() {
	census, err := w.store.Census(w.ctx)
	check(w.tb, err)
	if !census.Conserved() {
		w.rt.Fatalf("law L4: %+v", census)
	}
}
