package redisstore_test

import (
	"cmp"
	"context"
	"errors"
	"hash/maphash"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"pgregory.net/rapid"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/breaker"
	"github.com/headgate/headgate/fairqueue"
	"github.com/headgate/headgate/internal/memory"
	"github.com/headgate/headgate/internal/redisconn"
	"github.com/headgate/headgate/internal/redistest"
	"github.com/headgate/headgate/lua"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/redisstore"
)

// Random operations of a sequence. Two halves run side by side, of as many sequences as package redistest says: 50 each, and 10 under the race detector.
const (
	conformanceSteps  = 80
	clusterSteps      = 25
	conformanceHalves = 2
	// Bounds of one half, low enough to be met in a short sequence: dead letters, passed tags that a call forgets, holders of a lease,
	// and gates and fields of the state that a command writes.
	fewDead    = 4
	fewPassed  = 1
	fewHolders = 1
	fewGates   = 2
	// fewQuiet is after how long a breaker is forgotten of which nothing is heard.
	fewQuiet = 15 * time.Second
	// compareEvery is after how many steps all that both hold is compared: their answers are after each.
	compareEvery = 5
	// tellEvery is after how many steps what both tell people is compared.
	tellEvery = 25
)

var check, number = redisstore.Check, redisstore.Number

// fewMoves are how many moves a call may make in that half.
var fewMoves = []int{3, 5, 8}

// TestScriptsEqualTheModel does random operations in Redis and in memory (package memory) and compares what each answers, and at regular
// steps levels, orders, tags, timers and counters. After each it asserts laws L7 and W, in the end L4.
func TestScriptsEqualTheModel(t *testing.T) {
	t.Parallel()
	conformHalves(t, redistest.Shared(t), "", conformanceSteps)
}

// TestScriptsStayInTheirSlot runs the same on a one-node cluster with #!lua, which refuses any undeclared slot.
func TestScriptsStayInTheirSlot(t *testing.T) {
	t.Parallel()
	conformHalves(t, redistest.SharedCluster(t), "#!lua flags=allow-oom\n", clusterSteps)
}

func conformHalves(t *testing.T, server *redistest.Server, preamble string, steps int, theme ...string) {
	t.Helper()
	for half := range conformanceHalves {
		t.Run(strconv.Itoa(half), func(t *testing.T) {
			t.Parallel()
			conform(t, server, preamble, steps, half == 1, theme...)
		})
	}
}

// conform runs sequences, of a theme where one is named.
func conform(t *testing.T, server *redistest.Server, preamble string, steps int, few bool, theme ...string) {
	t.Helper()
	client := server.Client(t)
	scripts := map[int]lua.Library{fairqueue.Moves: maps.Clone(lua.Scripts(preamble, lua.SingleLayout))}
	if few {
		clear(scripts)
		for _, moves := range fewMoves {
			scripts[moves] = lowered(t, preamble, moves)
			if len(theme) == 0 { // One half of one suite is enough of the way that is slower.
				redisstore.TextsOnly(scripts[moves])
			}
		}
	}
	run := 0
	prefix := redistest.Prefix(t)
	rapid.Check(t, func(rt *rapid.T) {
		run++
		s, err := redisstore.NewStore(client, redisstore.Config{Prefix: prefix + strconv.Itoa(run)}, preamble)
		check(t, err)
		w := &walk{tb: t, rt: rt, store: s, themes: theme}
		bounds := memory.Bounds{}
		if few {
			bounds = memory.Bounds{Moves: pick(w, "moves", fewMoves), Letters: fewDead, Holders: fewHolders, Quiet: fewQuiet}
		}
		s.Conn().Scripts = scripts[cmp.Or(bounds.Moves, fairqueue.Moves)]
		w.begin(bounds)
		defer w.clean()
		for i := range steps {
			w.step()
			if i%compareEvery == compareEvery-1 {
				w.compare()
			}
			if i%tellEvery == tellEvery-1 {
				w.told()
			}
		}
		w.compare()
		w.told()
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
		{"local DEAD_CAP = %d\n", store.MaxLetters, fewDead},
		{"local HOLDERS = %d\n", 128, fewHolders},
		{"local GATES_AT_ONCE = %d ", 1000, fewGates},
		{"local FIELDS_AT_ONCE = %d\n", 1000, fewGates},
		{"format('%%.17g', V), 'LIMIT', 0, math.max(%d, ", 16, fewPassed},
	} {
		redisstore.Lower(t, scripts, bound.where, bound.from, bound.to)
	}
	return scripts
}

// walk is one random sequence, in Redis and in memory.
type walk struct {
	tb     testing.TB
	rt     *rapid.T
	ctx    context.Context //nolint:containedctx // the test's own, for every step
	store  *redisstore.Partition
	memory *memory.Partition
	// inside is what there is to see of the one in memory.
	inside *memory.Inside
	now    int64
	// back is by how much the clock was set back since promote last armed timers anew, in microseconds.
	back  int64
	pools []store.Pool
	// gates are "all" kinds, those of a tenant and its lanes where few slots are ("lanes"), "breakers" alone, the same beside jobs that
	// come alone and own nothing ("lone"), or "none".
	gates string
	// theme is what a sequence is about that goes deep into a part, "" for one of all things.
	theme  string
	themes []string // those to pick from, none for all
	// held are the leases that workers have read, of both, by worker.
	held    map[string][]held
	limits  [3][admission.Levels]admission.Limit
	typed   typedLimits
	version int64
	owned   map[string]owned // What tenants have of their own, nil where the policy has no records.
	edited  int64            // The latest edit of a record that a beat was told, and some of those before.
	heard   []int64
	usage   int                                     // Of how many tenants the policy has usage kept.
	bypass  [2]int                                  // What Limit.Bypassing is given for jobs of the first class, zeros for none.
	sheds   map[shedding][2]admission.PressureLevel // From which level on the policy refuses which jobs,
	dooms   map[string]int                          // and above how many percent of what they may wait, by queue.
	others  map[string]int                          // Jobs that count against reserves, as the last step left them.
	// before is the policy in force as it was stored, nil for none.
	before   *store.PolicyUpdate
	sequence uint64 // numbers reports of outcomes
	takings  []store.Taken
	service  *serviceLog
	log      []string
	// resend is the step's call once more, word for word: what a client does whose reply was lost.
	resend func()
}

// held is what a worker has read of Redis and of memory.
type held [2]store.Lease

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

// walkThemes are the steps of the sequences that have a theme.
var walkThemes = map[string][]string{
	"losses":     {"start", "read", "lose", "admit", "register", "promote", "finish", "heartbeat", "reclaim"},
	"letters":    {"finish", "read", "admit", "finish", "read", "admit", "register", "promote", "policy", "purge"},
	"spills":     {"finish", "read", "promote", "admit", "finish", "read", "promote", "register", "promote", "cancel", "clear", "policy"},
	"pressed":    {"press", "admit", "press", "admit", "check", "promote", "policy", "read", "press", "finish", "register"},
	"adaptive":   {"adapt", "admit", "report", "read", "adapt", "finish", "adapt", "report", "promote", "register", "policy", "gate"},
	"limits":     {"scale", "record", "check", "take", "grant", "refund", "record", "reserve", "admit", "scale", "read", "finish", "promote", "policy", "shadow"},
	"algorithms": {"take", "refund", "policy", "grant", "refund", "take", "admit", "read", "finish", "check", "scale", "record", "reserve"},
	"bypass":     {"admit", "read", "finish", "admit", "scale", "check", "finish", "admit", "record", "promote", "policy", "register"},
	"alone":      {"admit", "admit", "gate", "record", "read", "finish", "admit", "finish", "promote", "register", "cancel"},
	"loads":      {"loads", "heartbeat", "rates", "heartbeat", "promote", "policy", "register", "reclaim"},
	"semaphores": {"semaphore", "semaphore", "semaphore", "policy", "admit"},
	"shares":     {"admit", "record", "read", "admit", "finish", "admit", "record", "read", "finish", "policy", "register", "promote"},
	"accounts":   {"admit", "read", "finish", "policy", "admit", "read", "promote", "gate", "report", "force", "look", "register", "cancel"},
	"capped":     {"record", "admit", "policy", "read", "admit", "record", "finish", "admit", "gate", "read", "finish", "register", "promote"},
	"rated":      {"record", "admit", "read", "finish", "record", "policy", "admit", "promote", "finish", "record", "read", "register", "promote"},
	"queue caps": {"record", "admit", "policy", "read", "admit", "record", "finish", "gate", "record", "admit", "finish", "register", "promote", "gate", "policy"},
	"bounded":    {"admit", "record", "admit", "read", "admit", "finish", "record", "admit", "promote", "policy", "read", "finish", "register", "cancel"},
	"breakers":   {"report", "probe", "admit", "promote", "read", "finish", "register", "force"},
}

// begin starts with nothing in either, a day ahead: Redis drops by its own clock what is over.
func (w *walk) begin(bounds memory.Bounds) {
	w.ctx, w.now, w.held, w.sheds, w.dooms, w.usage = w.tb.Context(), time.Now().Add(24*time.Hour).UnixMicro(), map[string][]held{}, nil, nil, 0
	w.memory = memory.New(memory.Config{
		Now: func() time.Time { return time.UnixMicro(w.now) }, KeepEnded: true, Bounds: bounds,
		Dispatched: func(d fairqueue.Dispatch) { w.service.dispatched(d) }, Rendered: func(j *fairqueue.Job, actual admission.Tokens) { w.service.rendered(j, actual) },
	})
	w.inside = w.memory.Inside()
	w.service = newServiceLog(w.inside.Room())
	if w.number("texts", 0, 3) == 0 { // Data of an older release is kept as it was.
		check(w.tb, redisconn.Client(w.store.Conn()).HSet(w.ctx, w.store.Conn().Partition.State(), redisconn.DataField, redisconn.TextData).Err())
	}
	// Scripts have shorter ways for one pool of one queue, and without gates.
	w.pools, w.gates = pick(w, "pools", [][]store.Pool{walkPools, walkPools, walkPools[2:]}), pick(w, "gates", []string{"all", "all", "lanes", "breakers", "lone", "none"})
	if w.themes == nil {
		w.themes = []string{"", "losses", "letters", "spills", "breakers", "", "spills", "adaptive", "semaphores", "pressed", "loads", "limits", "algorithms"}
	}
	if w.theme = pick(w, "theme", w.themes); w.theme != "" {
		w.gates, w.pools = cmp.Or(map[string]string{"breakers": "breakers", "adaptive": "all", "alone": "all", "accounts": "all", "capped": "all", "rated": "all", "queue caps": "all"}[w.theme], "none"), walkPools[:1]
	}
	if w.theme == "alone" {
		w.pools = walkPools[2:]
	}
	w.drawLimits()
	if w.number("records", 0, 2) == 0 || w.theme == "shares" || w.theme == "capped" || w.theme == "rated" || w.theme == "queue caps" || w.theme == "bounded" || (w.theme == "limits" || w.theme == "algorithms") && w.number("records of limits", 0, 1) == 0 {
		w.owned, w.edited, w.heard = map[string]owned{}, 0, nil
	}
	w.store.SetTime(time.UnixMicro(w.now))
	if w.theme != "" {
		w.register()
		w.promote()
	}
	if w.theme == "spills" || w.theme == "letters" || w.theme == "adaptive" || w.theme == "accounts" || w.theme == "pressed" || w.theme == "loads" || w.theme == "shares" || w.theme == "capped" || w.theme == "rated" || w.theme == "queue caps" || w.theme == "bounded" || w.gates != "lone" && w.number("governed", 0, 1) == 1 {
		w.policy()
	}
}

func (w *walk) clean() {
	const erase = `for _, k in ipairs(redis.call('KEYS', ARGV[1] .. '*')) do redis.call('DEL', k) end`
	err := redisconn.Client(w.store.Conn()).Eval(w.ctx, w.store.Conn().Preamble+erase, []string{w.store.Conn().Partition.State()}, w.store.Conn().Partition.Base()).Err()
	if !errors.Is(err, redis.Nil) {
		check(w.tb, err)
	}
}

func (w *walk) step() {
	w.tick()
	before := w.service.begin()
	ops := []string{ // rapid draws the first more often
		"gate", "finish", "adapt", "admit", "gate", "read", "admit", "admit", "adapt", "admit", "read", "finish", "finish", "register",
		"promote", "promote", "register", "heartbeat", "press", "loads", "reclaim", "policy", "orphan",
		"cancel", "clear", "purge", "suspend", "start", "check", "take", "refund", "reserve", "grant", "grant", "report", "report", "report", "force", "probe", "shadow", "reset", "look", "semaphore", "scale", "record", "rates",
	}
	if w.gates == "lanes" {
		ops = []string{"cancel", "admit", "gate", "promote", "read", "finish", "register"}
	}
	if theme := walkThemes[w.theme]; theme != nil {
		ops = slices.Clone(theme)
	}
	ops = slices.DeleteFunc(ops, func(op string) bool {
		return op == "gate" && w.gates != "all" && w.gates != "lanes" || op == "adapt" && w.gates != "all" || op == "press" && len(w.sheds) == 0 || op == "record" && w.owned == nil || w.gates == "lone" && (op == "policy" || op == "orphan" || op == "suspend") || (op == "report" || op == "force" || op == "probe") && w.gates == "none"
	})
	op := pick(w, "op", ops)
	w.log = append(w.log, op)
	w.resend = nil
	map[string]func(){
		"admit": w.admit, "read": w.read, "finish": w.finish, "register": w.register, "heartbeat": w.heartbeat, "reclaim": w.reclaim,
		"promote": w.promote, "gate": w.gate, "policy": w.policy, "orphan": w.orphan, "cancel": w.cancel, "clear": w.clear, "purge": w.purge,
		"suspend": w.suspend, "check": w.checks, "grant": w.grant, "take": w.take, "refund": w.refund, "reserve": w.reserve, "start": w.start, "report": w.report,
		"force": w.force, "probe": w.probe, "shadow": w.shadow, "adapt": w.adapt, "press": w.press, "loads": w.loads, "reset": w.reset, "look": w.sight, "lose": w.lose, "semaphore": w.semaphore,
		"scale": w.scale, "record": w.record, "rates": w.rates,
	}[op]()
	if w.resend != nil && w.number("resend", 0, 3) == 0 {
		w.log = append(w.log, op+" again")
		w.resend()
	}
	w.assertWakeUp(op)
	w.assertReserves(op)
	w.assertMoved(op)
	if err := w.service.end(before); err != nil {
		w.rt.Fatalf("after %s: %v", op, err)
	}
}

// same does something to both, fails where they answer otherwise, and returns the answer of the one in memory.
func (w *walk) same(what string, do func(s store.Partition) any) any {
	want, got := do(w.store), do(w.memory)
	if a, b := redistest.Scrubbed(want), redistest.Scrubbed(got); !reflect.DeepEqual(a, b) {
		w.fatalf("%s at %d (%s):\nredis  %+v\nmemory %+v", what, w.now, strings.Join(w.log, " "), a, b)
	}
	return got
}

// replied is same of a method, of which it returns the values.
func (w *walk) replied(what string, do func(s store.Partition) redistest.Reply) redistest.Reply {
	reply, _ := w.same(what, func(s store.Partition) any { return do(s) }).(redistest.Reply)
	return reply
}

// fatalf ends the sequence, or the test where there is none.
func (w *walk) fatalf(format string, args ...any) {
	if w.rt != nil {
		w.rt.Fatalf(format, args...)
	}
	w.tb.Fatalf(format, args...)
}

// side is where a worker's leases of a store are.
func (w *walk) side(s store.Partition) int {
	if s == store.Partition(w.memory) {
		return 1
	}
	return 0
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
	w.store.SetTime(time.UnixMicro(w.now))
}

var digestSeed = maphash.MakeSeed()

// digest sums the hashes of lines, whatever their order.
func digest(lines []string) (sum uint64) {
	for _, line := range lines {
		sum += maphash.String(digestSeed, line)
	}
	return sum
}

// compare compares all that decides on jobs.
func (w *walk) compare() {
	got, want := dumpRedis(w.ctx, w.tb, w.store), w.memory.Dump()
	if digest(got) == digest(want) {
		return
	}
	var diff []string
	for _, line := range got {
		if !slices.Contains(want, line) {
			diff = append(diff, "redis  "+line)
		}
	}
	for _, line := range want {
		if !slices.Contains(got, line) {
			diff = append(diff, "memory "+line)
		}
	}
	slices.SortFunc(diff, func(a, b string) int { return strings.Compare(a[7:], b[7:]) })
	w.fatalf("at %d (%s):\n%s", w.now, strings.Join(w.log, " "), strings.Join(diff, "\n"))
}

// told compares what both tell people.
func (w *walk) told() {
	w.replied("gates", func(s store.Partition) redistest.Reply { return redistest.Replied(s.Gates(w.ctx)) })
	w.replied("adaptive limits", func(s store.Partition) redistest.Reply { return redistest.Replied(s.Adaptations(w.ctx)) })
	w.replied("loads", func(s store.Partition) redistest.Reply { return redistest.Replied(s.Loads(w.ctx, walkQueues)) })
	w.replied("holds", func(s store.Partition) redistest.Reply { return redistest.Replied(s.Holds(w.ctx)) })
	w.replied("queues", func(s store.Partition) redistest.Reply { return redistest.Replied(s.Queues(w.ctx)) })
	for _, tenant := range []string{"", "ann"} {
		w.replied("usage", func(s store.Partition) redistest.Reply {
			return redistest.Replied(s.Usage(w.ctx, store.UsageQuery{Day: time.UnixMicro(w.now), Tenant: tenant}))
		})
	}
	w.replied("census", func(s store.Partition) redistest.Reply { return redistest.Replied(s.Census(w.ctx)) })
	w.replied("workers", func(s store.Partition) redistest.Reply { return redistest.Replied(s.Workers(w.ctx)) })
	w.replied("deaths", func(s store.Partition) redistest.Reply { return redistest.Replied(s.Deaths(w.ctx, time.Time{}, 0)) })
	w.replied("jobs", func(s store.Partition) redistest.Reply {
		page, err := s.List(w.ctx, store.ListQuery{Limit: store.MaxPage})
		for i := range page.Jobs {
			page.Jobs[i].Token = ""
		}
		slices.SortFunc(page.Jobs, func(a, b store.Listed) int { return strings.Compare(a.Key.String(), b.Key.String()) })
		return redistest.Replied(page, err)
	})
	w.replied("breakers", func(s store.Partition) redistest.Reply {
		all, err := s.Breakers(w.ctx)
		for i := range all {
			all[i].For = 0 // It is told by the clock of Redis.
		}
		return redistest.Replied(all, err)
	})
	w.replied("audit", func(s store.Partition) redistest.Reply {
		page, err := s.Audit(w.ctx, store.AuditQuery{})
		return redistest.Replied(page.Entries, err)
	})
}
