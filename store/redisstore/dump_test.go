package redisstore_test

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/buckets"
	"github.com/headgate/headgate/internal/keyspace"
	"github.com/headgate/headgate/internal/redisconn"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/redisstore"
	"github.com/headgate/headgate/store/redisstore/internal/codec"
	"github.com/headgate/headgate/store/redisstore/internal/looking"
)

// redisDump writes what Redis holds in the words of memory.Partition.Dump.
type redisDump struct {
	tb    testing.TB
	store *redisstore.Partition
	lines []string
	state map[string]string
	keys  map[string]any // by name without the base: map[string]string, []redis.Z, []entry or []string
	// strings are the keys that hold one, by the same names.
	strings map[string]string
}

// entry is one entry of a ready stream.
type entry struct{ token, key, record string }

// snapshotScript reads every key of a test's own prefix in one round trip.
const snapshotScript = `
local read = {
  hash = function(k) return redis.call('HGETALL', k) end,
  zset = function(k) return redis.call('ZRANGE', k, 0, -1, 'WITHSCORES') end,
  set = function(k) return redis.call('SMEMBERS', k) end,
  stream = function(k) return redis.call('XRANGE', k, '-', '+') end,
  string = function(k) return redis.call('GET', k) end,
  list = function(k) return redis.call('LRANGE', k, 0, -1) end,
}
local out = {}
for _, k in ipairs(redis.call('KEYS', ARGV[1] .. '*')) do
  local kind = redis.call('TYPE', k).ok
  out[#out + 1] = { k, kind, read[kind](k) }
end
return out`

func (d *redisDump) read(ctx context.Context) {
	base := d.store.Conn().Partition.Base()
	rows, err := redisconn.Client(d.store.Conn()).Eval(ctx, d.store.Conn().Preamble+snapshotScript, []string{d.store.Conn().Partition.State()}, base).Slice()
	check(d.tb, err)
	for _, row := range rows {
		parts := row.([]any)
		name := strings.TrimPrefix(parts[0].(string), base)
		switch parts[1] {
		case "hash":
			d.keys[name] = pairs(parts[2].([]any))
		case "zset":
			d.keys[name] = scored(d.tb, parts[2].([]any))
		case "set":
			d.keys[name] = texts(parts[2].([]any))
		case "stream":
			d.keys[name] = entries(parts[2].([]any))
		case "string":
			d.strings[name] = parts[2].(string)
		}
	}
}

func pairs(flat []any) map[string]string {
	m := make(map[string]string, len(flat)/2)
	for i := 0; i < len(flat); i += 2 {
		m[flat[i].(string)] = flat[i+1].(string)
	}
	return m
}

func scored(tb testing.TB, flat []any) []redis.Z {
	tb.Helper()
	zs := make([]redis.Z, 0, len(flat)/2)
	for i := 0; i < len(flat); i += 2 {
		score, err := strconv.ParseFloat(flat[i+1].(string), 64)
		check(tb, err)
		zs = append(zs, redis.Z{Member: flat[i], Score: score})
	}
	return zs
}

func texts(flat []any) []string {
	out := make([]string, len(flat))
	for i := range flat {
		out[i] = flat[i].(string)
	}
	return out
}

func entries(rows []any) []entry {
	out := make([]entry, len(rows))
	for i, row := range rows {
		fields := row.([]any)[1].([]any)
		out[i].token = row.([]any)[0].(string)
		if len(fields) >= 4 {
			out[i].key, out[i].record = fields[1].(string), fields[3].(string)
		}
	}
	return out
}

func (d *redisDump) hash(name string) map[string]string {
	m, _ := d.keys[name].(map[string]string)
	return m
}
func (d *redisDump) zset(name string) []redis.Z { z, _ := d.keys[name].([]redis.Z); return z }
func (d *redisDump) set(name string) []string   { m, _ := d.keys[name].([]string); return m }
func (d *redisDump) stream(name string) []entry { e, _ := d.keys[name].([]entry); return e }

func dumpRedis(ctx context.Context, tb testing.TB, s *redisstore.Partition) []string {
	tb.Helper()
	d := &redisDump{tb: tb, store: s, keys: map[string]any{}, strings: map[string]string{}}
	d.read(ctx)
	d.state = keyspace.Unpacked(d.hash("state"))
	d.queues()
	d.pools()
	d.gates()
	d.breakers(ctx)
	d.jobs()
	d.buckets()
	d.leases()
	return d.lines
}

func (d *redisDump) add(format string, args ...any) {
	d.lines = append(d.lines, fmt.Sprintf(format, args...))
}

func (d *redisDump) queues() {
	for field, value := range d.state {
		queue, ok := strings.CutPrefix(field, "q:")
		if !ok {
			continue
		}
		parts := strings.Split(value, "|")
		d.add("queue %s turn %d left %s", queue, number(d.tb, parts[0])-1, parts[1])
		pace, _ := strconv.ParseFloat(parts[2], 64)
		d.add("queue %s pace %.9g stamp %s", queue, pace, parts[3])
		for c := range (len(parts) - 4) / 2 {
			v, err := strconv.ParseFloat(parts[4+2*c], 64)
			check(d.tb, err)
			if v != 0 || parts[5+2*c] != "0" { // One that has had no job yet may not be written.
				d.add("class %d:%s V %.17g waiting %s", c, queue, v, parts[5+2*c])
			}
			d.class(fmt.Sprintf("%d:%s", c, queue), v)
		}
	}
}

func (d *redisDump) class(cq string, v float64) {
	for _, z := range d.zset("act:" + cq) {
		member := z.Member.(string)
		entry := beUint64(member[:8])
		d.add("class %s tenant %s runnable tag %.17g entry %d", cq, member[8:], z.Score, entry)
	}
	for _, z := range d.zset("idle:" + cq) {
		if z.Score > v {
			d.add("class %s tenant %s keeps tag %.17g", cq, z.Member, z.Score)
		}
	}
	for tenant, value := range d.hash("ten:" + cq) {
		if value[0] != 'a' {
			d.add("class %s tenant %s mode %c", cq, tenant, value[0])
		}
		lanes, open := map[string]bool{}, 0
		for _, z := range d.zset("lanes:" + cq + ":" + tenant) {
			lanes[z.Member.(string)] = z.Score >= 4e15
			if z.Score < 4e15 {
				open++
			}
			head := d.zset("lane:" + cq + ":" + tenant + ":" + z.Member.(string))
			if len(head) == 0 || head[0].Score != z.Score && head[0].Score+4e15 != z.Score {
				d.add("BROKEN lanes:%s:%s %s score %f head %v", cq, tenant, z.Member, z.Score, head)
			}
		}
		if only, parked := strings.CutPrefix(value[9:], "+"); only != "*" {
			if _, twice := lanes[only]; twice || parked != (len(lanes) > 0) {
				d.add("BROKEN ten:%s %s %s beside %v", cq, tenant, value[9:], lanes)
			}
			lanes[only] = false
			open++
		}
		if value[0] != 't' && (value[9:] == "*") != (open != 1) {
			d.add("BROKEN ten:%s %s %s of %v", cq, tenant, value[9:], lanes)
		}
		for lane, blocked := range lanes {
			d.lane(cq, tenant, lane, blocked)
		}
	}
}

func beUint64(s string) (n uint64) {
	for i := range 8 {
		n = n<<8 | uint64(s[i])
	}
	return n
}

func (d *redisDump) lane(cq, tenant, lane string, blocked bool) {
	var jobs []string
	for _, z := range d.zset("lane:" + cq + ":" + tenant + ":" + lane) {
		m := z.Member.(string)
		cost := beUint64("\x00\x00\x00\x00" + m[8:12])
		jobs = append(jobs, fmt.Sprintf("%s@%.0f#%d$%d", store.DecodeID(m[12:]), z.Score, beUint64(m[:8]), cost))
	}
	d.add("class %s tenant %s lane %s blocked %t: %s", cq, tenant, lane, blocked, strings.Join(jobs, " "))
}

func (d *redisDump) pools() {
	for field, value := range d.state {
		id, ok := strings.CutPrefix(field, "pool:")
		if !ok {
			continue
		}
		parts := strings.Split(value, "|")
		ready := d.stream("ready:" + id)
		d.add("pool %s slots %s turn %d left %s ready %d", id, parts[0], number(d.tb, parts[2])-1, parts[3], len(ready))
		for i, e := range ready {
			k, err := store.DecodeKey(e.key)
			check(d.tb, err)
			d.add("ready %s %03d %s", id, i, k)
		}
	}
	d.add("seq %d", number(d.tb, "0"+d.state["seq"]))
	for _, z := range d.zset("due") {
		d.add("timer %s at %.0f", z.Member, z.Score)
	}
}

func isRate(name string) bool {
	return name[0] == store.KindTenantRate || name[0] == store.KindDownstreamRate
}

func (d *redisDump) gates() {
	limits := looking.DefaultLimits(d.hash("gates"))
	caps := codec.RecordedCaps{Tiers: codec.ParseTierCaps(d.state["tc"]), Each: limits["t:*"]}
	for name, value := range d.hash("gates") {
		parts := strings.SplitN(value, "|", 3)
		switch {
		case isRate(name):
			d.add("gate %s rate %s", name, parts[2])
		case name[0] == store.KindReserve:
			d.add("gate %s held %s", name, parts[1])
			d.add("reserve %s %s", name[2:], parts[0])
		case parts[0] == "*":
			g := store.GateState{Name: store.GateName(name), Limit: limits[store.DefaultGate(store.GateName(name))]}
			caps.Put(&g, value, d.hash("records")[name[2:]])
			d.add("gate %s limit %d held %s", name, g.Limit, parts[1])
		default:
			limit, byTier := strings.CutSuffix(parts[0], codec.ByTier)
			if byTier || limit == "0" && name[0] == store.KindTenant && strings.HasSuffix(strings.SplitN(value, "|", 5)[3], codec.ByTier) {
				d.add("gate %s is of a tier", name)
			}
			d.add("gate %s limit %s held %s", name, limit, parts[1])
		}
	}
	d.accounts()
	for name, n := range d.hash("runs") {
		cut := strings.LastIndex(name, ":")
		d.add("class %s runs %s of %s alone", name[:cut], n, name[cut+1:])
	}
	for name, n := range d.hash("holds") {
		d.add("hold %s %s", name, n)
	}
	for gate, value := range d.hash("wakes") {
		_, line, _ := strings.Cut(value, "|")
		d.add("wake %s from %s", gate, line)
	}
	for downstream, n := range d.hash("waits") {
		d.add("waiting for %s: %s", downstream, n)
	}
	for key := range d.keys {
		rest, ok := strings.CutPrefix(key, "gw:")
		if !ok {
			continue
		}
		gate, line, _ := strings.Cut(rest, "|")
		for _, z := range d.zset(key) {
			d.add("parked %s line %s %s tag %.17g", gate, line, z.Member, z.Score)
		}
	}
}

// accounts tells of accounts that wait for a token, and whose rates are not full, where they have none of their own.
func (d *redisDump) accounts() {
	for _, name := range d.set("accounts") {
		d.add("account %s waits", name)
	}
	for key, stored := range d.strings {
		name, ok := strings.CutPrefix(key, "account:")
		each := strings.Split(d.hash("gates")[store.DefaultGate(store.DownstreamRateGate(name))], "|")
		if _, own := d.hash("gates")["s:"+name]; !ok || own || len(each) < 2 {
			continue
		}
		rate, err := strconv.ParseFloat(each[0], 64)
		check(d.tb, err)
		burst, err := strconv.ParseInt(each[1], 10, 64)
		check(d.tb, err)
		now, err := strconv.ParseInt(d.state["bt"], 10, 64)
		check(d.tb, err)
		b, err := buckets.Parse(stored)
		check(d.tb, err)
		limit := buckets.Limit{Rate: admission.TokensPerSecond(rate), Burst: buckets.Micro(burst)}
		if level, _ := buckets.Settle(buckets.Instant(now), 0, b, limit); level < limit.Burst {
			d.add("account %s %s", name, stored)
		}
	}
}

func (d *redisDump) jobs() {
	for key, raw := range d.hash("jobs") {
		rec, err := codec.DecodeRecord(key, raw)
		check(d.tb, err)
		d.add("job %s:%s attempts %d lost %d suspect %t timed %t counted %t", rec.Job.Tenant, rec.Job.ID, rec.Attempts, rec.Lost, rec.Suspect, rec.Timed, raw[1]&codec.FlagCounted != 0)
	}
	d.marks()
	d.depths()
	for _, name := range []string{"later", "dead"} {
		for _, z := range d.zset(name) {
			k, err := store.DecodeKey(z.Member.(string))
			check(d.tb, err)
			d.add("%s %s at %.0f", name, k, z.Score)
		}
	}
	for field, value := range d.state {
		if strings.HasPrefix(field, "left:") || strings.HasPrefix(field, "dead:") || field == "accepted" {
			if value != "0" {
				d.add("count %s %s", field, value)
			}
		}
	}
	generation := number(d.tb, "0"+d.state["gen"])
	for age := range 2 {
		for _, key := range d.set(fmt.Sprintf("ended:%d", generation-age)) {
			k, err := store.DecodeKey(key)
			check(d.tb, err)
			d.add("ended %d %s", age, k)
		}
	}
}

// marks writes what is noted about jobs beside their records.
func (d *redisDump) marks() {
	for name := range d.keys {
		kind, rest, _ := strings.Cut(name, ":")
		switch kind {
		case "dead", "letters", "deadof", "deadin":
			for _, z := range d.zset(name) {
				if name != "dead" {
					d.add("%s %s: %s %.0f", kind, rest, z.Member, z.Score)
				}
			}
		}
	}
	for key, mark := range d.hash("marks") {
		k, err := store.DecodeKey(key)
		check(d.tb, err)
		period, rest, _ := strings.Cut(mark, "|")
		d.add("mark %s period %s", k, period)
		d.add("mark %s began %s", k, rest)
	}
	for key := range d.hash("cancelled") {
		d.add("cancelled %s", key)
	}
	for key, worker := range d.hash("started") {
		d.add("started %s by %s", key, worker)
	}
	for key, group := range d.hash("suspects") {
		d.add("suspect %s of %s", key, group)
	}
	for worker, text := range d.hash("begun") {
		d.add("begun by %s %s", worker, text)
	}
	for name, value := range d.hash("suspended") {
		until, _, _ := strings.Cut(value, "|")
		d.add("suspended %s until %s", name, until)
	}
	for name, holder := range d.strings {
		if unique, ok := strings.CutPrefix(name, "unique:"); ok {
			d.add("unique %s held by %s", unique, holder)
		}
	}
	for key, name := range d.hash("ukeys") {
		d.add("unique %s released by %s", name, key)
	}
}

func (d *redisDump) buckets() {
	for tenant, stored := range d.hash("records") {
		r, err := codec.ParseRecord(tenant, stored)
		check(d.tb, err)
		d.add("record %s %d %s", tenant, r.Version, r.Text)
	}
	if d.state["rt"] != "" {
		d.add("records by tier %s", d.state["rt"])
	}
	d.recordedCaps()
	d.recordedBounds()
	if n := number(d.tb, "0"+d.state["nw"]); (n >= 1<<24) != (d.state["rt"] != "") || n%(1<<24) != len(d.hash("weights")) {
		d.add("BROKEN nw %d beside records by tier %q", n, d.state["rt"])
	}
	text := func(stored string) []byte {
		b, err := buckets.Parse(stored)
		check(d.tb, err)
		text, err := b.MarshalText()
		check(d.tb, err)
		return text
	}
	for field, scope := range map[string]admission.Scope{"gb": admission.Global, "gbo": buckets.Others} {
		if stored, ok := d.state[field]; ok {
			d.add("bucket %s %s", scope, text(stored))
		}
	}
	for key := range d.keys {
		tenant, ok := strings.CutPrefix(key, "b:")
		if !ok {
			continue
		}
		for field, stored := range d.hash(key) {
			switch field {
			case "^":
				d.add("%s swept until %s", tenant, stored)
				continue
			case "!":
				continue
			case "~":
				d.add("limits of %s changed at %s", tenant, stored)
				continue
			}
			scope := tenant
			if field != "" {
				scope += ":" + field
			}
			d.add("bucket %s %s", scope, text(stored))
		}
	}
}
