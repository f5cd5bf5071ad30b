package lua

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/headgate/headgate"
)

// redisDump writes what Redis holds in the words of fairqueue.Room.Dump and model.dump.
type redisDump struct {
	tb    testing.TB
	store *Store
	lines []string
	state map[string]string
	vs    map[string]float64
}

func dumpRedis(ctx context.Context, tb testing.TB, s *Store) string {
	d := &redisDump{tb: tb, store: s, vs: map[string]float64{}}
	d.state = must(tb)(s.client.HGetAll(ctx, s.partition.State()).Result())
	d.queues(ctx)
	d.pools(ctx)
	d.gates(ctx)
	d.jobs(ctx)
	d.buckets(ctx)
	slices.Sort(d.lines)
	return strings.Join(d.lines, "\n")
}

func must(tb testing.TB) func(map[string]string, error) map[string]string {
	return func(m map[string]string, err error) map[string]string {
		check(tb, err)
		return m
	}
}

func check(tb testing.TB, err error) {
	tb.Helper()
	if err != nil {
		tb.Fatal(err)
	}
}

func (d *redisDump) add(format string, args ...any) {
	d.lines = append(d.lines, fmt.Sprintf(format, args...))
}

func (d *redisDump) key(format string, args ...any) string {
	return d.store.partition.Base() + fmt.Sprintf(format, args...)
}

func number(tb testing.TB, text string) int {
	n, err := strconv.Atoi(text)
	check(tb, err)
	return n
}

func (d *redisDump) queues(ctx context.Context) {
	for field, value := range d.state {
		queue, ok := strings.CutPrefix(field, "q:")
		if !ok {
			continue
		}
		parts := strings.Split(value, "|")
		d.add("queue %s turn %d left %s", queue, number(d.tb, parts[0])-1, parts[1])
		for c := range (len(parts) - 5) / 2 {
			v, err := strconv.ParseFloat(parts[5+2*c], 64)
			check(d.tb, err)
			d.add("class %d:%s V %.17g waiting %s", c, queue, v, parts[6+2*c])
			d.class(ctx, fmt.Sprintf("%d:%s", c, queue), v)
		}
	}
}

func (d *redisDump) class(ctx context.Context, cq string, v float64) {
	client := d.store.client
	for _, z := range client.ZRangeWithScores(ctx, d.key("act:%s", cq), 0, -1).Val() {
		member := z.Member.(string)
		entry := beUint64(member[:8])
		d.add("class %s tenant %s runnable tag %.17g entry %d", cq, member[8:], z.Score, entry)
	}
	for _, z := range client.ZRangeWithScores(ctx, d.key("idle:%s", cq), 0, -1).Val() {
		if z.Score > v {
			d.add("class %s tenant %s keeps tag %.17g", cq, z.Member, z.Score)
		}
	}
	for tenant, value := range client.HGetAll(ctx, d.key("ten:%s", cq)).Val() {
		if value[0] != 'a' {
			d.add("class %s tenant %s mode %c", cq, tenant, value[0])
		}
		lanes := map[string]bool{value[9:]: false}
		if value[9:] == "*" {
			lanes = map[string]bool{}
			for _, z := range client.ZRangeWithScores(ctx, d.key("lanes:%s:%s", cq, tenant), 0, -1).Val() {
				lanes[z.Member.(string)] = z.Score >= 4e15
				head := client.ZRangeWithScores(ctx, d.key("lane:%s:%s:%s", cq, tenant, z.Member), 0, 0).Val()
				if len(head) == 0 || head[0].Score != z.Score && head[0].Score+4e15 != z.Score {
					d.add("BROKEN lanes:%s:%s %s score %f head %v", cq, tenant, z.Member, z.Score, head)
				}
			}
		}
		for lane, blocked := range lanes {
			d.lane(ctx, cq, tenant, lane, blocked)
		}
	}
}

func beUint64(s string) (n uint64) {
	for i := range 8 {
		n = n<<8 | uint64(s[i])
	}
	return n
}

func (d *redisDump) lane(ctx context.Context, cq, tenant, lane string, blocked bool) {
	var jobs []string
	for _, z := range d.store.client.ZRangeWithScores(ctx, d.key("lane:%s:%s:%s", cq, tenant, lane), 0, -1).Val() {
		m := z.Member.(string)
		cost := beUint64("\x00\x00\x00\x00" + m[8:12])
		jobs = append(jobs, fmt.Sprintf("%s@%.0f#%d$%d", decodeID(m[12:]), z.Score, beUint64(m[:8]), cost))
	}
	d.add("class %s tenant %s lane %s blocked %t: %s", cq, tenant, lane, blocked, strings.Join(jobs, " "))
}

func (d *redisDump) pools(ctx context.Context) {
	for field, value := range d.state {
		id, ok := strings.CutPrefix(field, "pool:")
		if !ok {
			continue
		}
		parts := strings.Split(value, "|")
		entries := d.store.client.XRange(ctx, d.store.partition.Ready(id), "-", "+").Val()
		d.add("pool %s slots %s turn %d left %s ready %d", id, parts[0], number(d.tb, parts[2])-1, parts[3], len(entries))
		for i, e := range entries {
			k, err := decodeKey(e.Values["j"].(string))
			check(d.tb, err)
			d.add("ready %s %03d %s", id, i, k)
		}
	}
	for _, z := range d.store.client.ZRangeWithScores(ctx, d.store.partition.Due(), 0, -1).Val() {
		d.add("timer %s at %.0f", z.Member, z.Score)
	}
}

func (d *redisDump) gates(ctx context.Context) {
	client := d.store.client
	for name, value := range client.HGetAll(ctx, d.store.partition.Gates()).Val() {
		parts := strings.Split(value, "|")
		d.add("gate %s limit %s held %s", name, parts[0], parts[1])
	}
	for _, key := range client.Keys(ctx, d.key("gw:*")).Val() {
		rest := strings.TrimPrefix(key, d.key("gw:"))
		gate, line, _ := strings.Cut(rest, "|")
		for _, z := range client.ZRangeWithScores(ctx, key, 0, -1).Val() {
			d.add("parked %s line %s %s tag %.17g", gate, line, z.Member, z.Score)
		}
	}
}

func (d *redisDump) jobs(ctx context.Context) {
	client, keys := d.store.client, d.store.partition
	for key, raw := range client.HGetAll(ctx, keys.Jobs()).Val() {
		rec, err := decodeRecord(key, raw)
		check(d.tb, err)
		d.add("job %s:%s attempts %d lost %d", rec.Job.Tenant, rec.Job.ID, rec.Attempts, rec.Lost)
	}
	for name, zset := range map[string]string{"later": keys.Later(), "dead": keys.Dead()} {
		for _, z := range client.ZRangeWithScores(ctx, zset, 0, -1).Val() {
			k, err := decodeKey(z.Member.(string))
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
		for _, key := range client.SMembers(ctx, d.key("ended:%d", generation-age)).Val() {
			k, err := decodeKey(key)
			check(d.tb, err)
			d.add("ended %d %s", age, k)
		}
	}
}

func (d *redisDump) buckets(ctx context.Context) {
	if text, ok := d.state["gb"]; ok {
		d.add("bucket global %s", text)
	}
	client := d.store.client
	for _, key := range client.Keys(ctx, d.key("b:*")).Val() {
		tenant := strings.TrimPrefix(key, d.key("b:"))
		for field, text := range client.HGetAll(ctx, key).Val() {
			if field == "!" {
				continue
			}
			scope := tenant
			if field != "" {
				scope += ":" + field
			}
			d.add("bucket %s %s", scope, text)
		}
	}
}

// dump writes what the model holds.
func (m *model) dump(scopes map[headgate.Scope]bool) string {
	var lines []string
	for line := range strings.SplitSeq(m.room.Dump(), "\n") {
		if line != "" && !strings.HasPrefix(line, "timer ") {
			lines = append(lines, line)
		}
	}
	add := func(format string, args ...any) { lines = append(lines, fmt.Sprintf(format, args...)) }
	for name, at := range m.due() {
		add("timer %s at %d", name, at)
	}
	for key, j := range m.live {
		add("job %s attempts %d lost %d", key, j.attempts, j.lost)
	}
	for key, at := range m.later {
		add("later %s at %d", key, at)
	}
	for key, at := range m.dead {
		add("dead %s at %d", key, at)
	}
	for reason, n := range m.left {
		add("count left:%s %d", reason, n)
	}
	for reason, n := range m.died {
		add("count dead:%s %d", reason, n)
	}
	if m.accepted > 0 {
		add("count accepted %d", m.accepted)
	}
	for age := range m.ended {
		for key := range m.ended[age] {
			add("ended %d %s", age, key)
		}
	}
	for _, scope := range slices.Sorted(maps.Keys(scopes)) {
		if b := m.buckets.Bucket(scope); !b.Absent() {
			text, _ := b.MarshalText()
			add("bucket %s %s", scope, text)
		}
	}
	slices.Sort(lines)
	return strings.Join(lines, "\n")
}
