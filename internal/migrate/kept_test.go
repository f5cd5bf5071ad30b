package migrate

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/redisconn"
	"github.com/headgate/headgate/store"
)

// keptScript reads what has to be the same before and after a migration from one partition: kind, name, contents in order.
const keptScript = `
local base, now = string.sub(KEYS[1], 1, -6), redis.call('TIME')
local out = {}
local function add(...) out[#out + 1] = table.concat({...}, ' ') end
local function zset(kind, key)
  local all = redis.call('ZRANGE', base .. key, 0, -1, 'WITHSCORES')
  for i = 1, #all, 2 do add(kind, all[i], all[i + 1]) end
end
local function hash(kind, key)
  local all = redis.call('HGETALL', base .. key)
  for i = 1, #all, 2 do add(kind, all[i], all[i + 1]) end
end
-- index compares what a class says of its tenants' lanes with the lanes.
local function index(class, tenants)
  for i = 1, #tenants, 2 do
    local tenant, value = tenants[i], tenants[i + 1]
    local lanes, n, open = {}, 0, 0
    local all = redis.call('ZRANGE', base .. 'lanes:' .. class .. ':' .. tenant, 0, -1, 'WITHSCORES')
    for j = 1, #all, 2 do
      local score, head = tonumber(all[j + 1]), redis.call('ZRANGE', base .. 'lane:' .. class .. ':' .. tenant .. ':' .. all[j], 0, 0, 'WITHSCORES')
      lanes[all[j]], n = true, n + 1
      if score < 4e15 then open = open + 1 end
      local at = tonumber(head[2])
      if not at or at ~= score and at + 4e15 ~= score then add('BROKEN lanes', class, tenant, all[j], all[j + 1], head[2] or 'no head') end
    end
    local named = string.sub(value, 10)
    local only, parked = string.gsub(named, '^%+', '')
    if only ~= '*' then
      if lanes[only] or (parked == 1) ~= (n > 0) then add('BROKEN ten', class, tenant, named, 'beside', n) end
      open = open + 1
    end
    if string.sub(value, 1, 1) ~= 't' and (named == '*') ~= (open ~= 1) then add('BROKEN ten', class, tenant, named, 'of', open) end
  end
end
if redis.call('SCARD', base .. 'breakers') ~= #redis.call('KEYS', base .. 'br:*') then add('BROKEN breakers') end
for _, kind in ipairs({ 'jobs', 'why', 'ukeys', 'starts', 'depth', 'policies', 'periodic' }) do hash(kind, kind) end
for _, kind in ipairs({ 'later', 'dead' }) do zset(kind, kind) end
local due = redis.call('ZRANGE', base .. 'due', 0, -1, 'WITHSCORES')
for i = 1, #due, 2 do
  -- That of a lane stays when its head is dispatched: there it is anew.
  if string.find(due[i], '^[dx]') then add('timer', due[i], string.find(due[i], '^x') and due[i + 1] or '') end
end
local waits = redis.call('HGETALL', base .. 'waits')
for i = 1, #waits, 2 do for n = 1, tonumber(waits[i + 1]) do add('wait', waits[i]) end end
for _, key in ipairs(redis.call('KEYS', base .. '*')) do
  local name = string.sub(key, #base + 1)
  local kind = string.match(name, '^[^:]*')
  if kind == 'lane' then add(name, table.concat(redis.call('ZRANGE', key, 0, -1, 'WITHSCORES'), ' '))
  elseif kind == 'old' or kind == 'spill' then
    if kind == 'spill' and redis.call('SISMEMBER', base .. 'spills', string.sub(name, 7)) == 0 then add('BROKEN', name, 'is not among the spills') end
    add(name, table.concat(redis.call('ZRANGE', key, 0, -1, 'WITHSCORES'), ' '))
  elseif kind == 'log' then add(name, table.concat(redis.call('LRANGE', key, 0, -1), ' '))
  elseif kind == 'large' or kind == 'result' or kind == 'unique' then
    add(name, redis.call('GET', key), redis.call('PTTL', key) > 0 and 'for a time' or 'for ever')
  elseif kind == 'b' or kind == 'x' or kind == 'rates' then
    local all = redis.call('HGETALL', key)
    for i = 1, #all, 2 do add(name, all[i], all[i + 1]) end
  elseif kind == 'ended' then
    for _, id in ipairs(redis.call('SMEMBERS', key)) do add('ended', id) end
  elseif kind == 'dead' and name ~= 'dead' then zset(name, name)
  elseif kind == 'ten' then index(string.sub(name, 5), redis.call('HGETALL', key))
  end
end
return out`

// keptOf returns what a migration has to keep, and fails where a partition breaks a rule of its structures or of conservation.
func keptOf(ctx context.Context, t *testing.T, s store.Deployment) (kept []string, census store.Census) {
	t.Helper()
	for i, part := range inRedis(s) {
		lines, err := redisconn.Client(part.Conn()).Eval(ctx, keptScript, []string{part.Conn().Partition.State()}).StringSlice()
		check(t, err)
		kept = append(kept, lines...)
		for _, line := range lines {
			if strings.HasPrefix(line, "BROKEN") {
				t.Errorf("partition %d: %s", i, line)
			}
		}
		one, err := part.Census(ctx)
		check(t, err)
		if !one.Conserved() {
			t.Errorf("partition %d does not conserve: %+v", i, one)
		}
	}
	for _, all := range [][]string{pausesOf(ctx, t, s), suspensionsOf(ctx, t, s), scalesOf(ctx, t, s), breakersOf(ctx, t, s), usageOf(ctx, t, s), recordsOf(ctx, t, s)} {
		kept = append(kept, all...)
	}
	slices.Sort(kept)
	census, err := s.Census(ctx)
	check(t, err)
	return slices.CompactFunc(kept, func(a, b string) bool { return a == b && mayBeInSeveral(a) }), census
}

// mayBeInSeveral reports whether several partitions may say the same.
func mayBeInSeveral(line string) bool {
	kind, _, _ := strings.Cut(line, " ")
	return slices.Contains([]string{"ended", "policies", "suspended", "breaker"}, kind)
}

// pausesOf tells of each pause in how many partitions it stands, all of those it is about being 1.
func pausesOf(ctx context.Context, t *testing.T, s store.Deployment) (lines []string) {
	t.Helper()
	found := map[string]int{}
	for _, part := range s.Partitions() {
		gates, err := part.Gates(ctx)
		check(t, err)
		for _, g := range gates {
			if !strings.HasPrefix(string(g.Name), "b:") && g.Burst == 0 && g.Limit == 0 {
				found[fmt.Sprintf("pause %s %s until the end of time %t", g.Name, g.Reason, g.Until.IsZero())]++
			}
		}
	}
	for line, n := range found {
		lines = append(lines, fmt.Sprintf("%s in all: %t", line, n == len(s.Partitions()) || n == 1 && strings.HasPrefix(line, "pause t:")))
	}
	return lines
}

// crowdUsage is of how many tenants usage is kept: fewer than there are.
const crowdUsage = 4

// usageOf tells what is kept of usage, and fails where a partition does not know of how many tenants it is.
func usageOf(ctx context.Context, t *testing.T, s store.Deployment) (lines []string) {
	t.Helper()
	now, err := s.Time(ctx)
	check(t, err)
	for _, day := range []time.Time{now.Add(-24 * time.Hour), now} {
		all, err := s.Usage(ctx, store.UsageQuery{Day: day})
		check(t, err)
		for _, u := range all {
			lines = append(lines, fmt.Sprintf("usage %+v", u))
			if u.Tenant == store.UsageRest {
				continue
			}
			if of, err := homeOf(s, u.Tenant).Usage(ctx, store.UsageQuery{Day: day, Tenant: u.Tenant, Queue: u.Queue}); err != nil || len(of) != 1 || of[0] != u {
				t.Errorf("%+v is not where its tenant is: %+v, %v", u, of, err)
			}
		}
		for i, part := range inRedis(s) {
			fields, err := redisconn.Client(part.Conn()).HGetAll(ctx, part.Conn().Partition.Usage(store.DayOf(day))).Result()
			check(t, err)
			tenants := 0
			for field := range fields {
				if strings.HasSuffix(field, ":") && field != ":" {
					tenants++
				}
			}
			if len(fields) > 0 && fields[":"] != strconv.Itoa(tenants) {
				t.Errorf("partition %d says that it keeps usage of %s tenants, and has %d", i, fields[":"], tenants)
			}
		}
	}
	return lines
}

func suspensionsOf(ctx context.Context, t *testing.T, s store.Deployment) (lines []string) {
	t.Helper()
	all, err := s.Suspensions(ctx)
	check(t, err)
	for _, p := range all {
		lines = append(lines, fmt.Sprintf("suspended %s %s until the end of time %t", p.Name, p.Reason, p.Until.IsZero()))
	}
	return lines
}

// recordsOf tells the records of tenants, each of which is where its tenant is, and is counted there by its tier.
func recordsOf(ctx context.Context, t *testing.T, s store.Deployment) (lines []string) {
	t.Helper()
	for i, part := range s.Partitions() {
		page, err := part.RecordsPage(ctx, store.RecordsQuery{})
		check(t, err)
		tiers, capped, bounded, rated, inQueues := map[string]int64{}, 0, 0, map[string]bool{}, map[string]map[string]int{}
		for _, r := range page.Records {
			says := store.RecordSharesOf(r.Text)
			tiers[says.Tier]++
			capped += min(says.MaxRunning, 1)
			if bounds := store.RecordBoundsOf(r.Text); !bounds.Empty() {
				bounded++
			}
			if store.RecordDispatchOf(r.Text) != nil {
				rated[r.Tenant] = true
			}
			if caps := store.RecordQueueCapsOf(r.Text); caps != nil {
				inQueues[r.Tenant] = caps
			}
			lines = append(lines, fmt.Sprintf("record %s %d %s", r.Tenant, r.Version, r.Text))
			if s.PartitionOf(r.Tenant) != i {
				t.Errorf("partition %d has the record of %s", i, r.Tenant)
			}
		}
		if counted, err := part.RecordTiers(ctx); err != nil || !maps.Equal(counted, tiers) {
			t.Errorf("partition %d counts records by tier as %v, %v, and has %v", i, counted, err, tiers)
		}
		at := inRedis(s)[i].Conn()
		if counted, err := redisconn.Client(at).HGet(ctx, at.Partition.State(), "rm").Int(); capped > 0 && err != nil || counted != capped {
			t.Errorf("partition %d counts %d records with a cap, %v, and has %d", i, counted, err, capped)
		}
		lines = append(lines, ratesOf(ctx, t, at, rated)...)
		lines = append(lines, queueCapsOf(ctx, t, at, inQueues)...)
		if counted, err := redisconn.Client(at).HGet(ctx, at.Partition.State(), "ro").Int(); bounded > 0 && err != nil || counted != bounded {
			t.Errorf("partition %d counts %d records with bounds, %v, and has %d", i, counted, err, bounded)
		}
	}
	if !slices.ContainsFunc(lines, func(line string) bool { return strings.HasPrefix(line, "rate of ") }) {
		t.Error("no rate of a record is left")
	}
	if !slices.ContainsFunc(lines, func(line string) bool { return strings.HasPrefix(line, "cap of ") }) {
		t.Error("no cap of a record in a queue is left")
	}
	if len(lines) == 0 {
		t.Error("no record is left")
	}
	return lines
}

// policysQueueCap is what the policy has of t3 in the queue hook.
const policysQueueCap = "500"

// queueCapsOf tells the caps of tenants in queues that are in force by records, and fails where another partition than the tenant's goes by a record's.
func queueCapsOf(ctx context.Context, t *testing.T, at *redisconn.Conn, capped map[string]map[string]int) (lines []string) {
	t.Helper()
	rows, err := redisconn.Client(at).HGetAll(ctx, at.Partition.QueueCaps()).Result()
	check(t, err)
	if counted, err := redisconn.Client(at).HGet(ctx, at.Partition.State(), "rq").Int(); len(capped) > 0 && err != nil || counted != len(capped) || len(rows) != len(capped) {
		t.Errorf("%s counts %d records with caps in queues, %v, and has %v for %v", at.Partition.Base(), counted, err, rows, capped)
	}
	gates, err := redisconn.Client(at).HGetAll(ctx, at.Partition.Gates()).Result()
	check(t, err)
	for i := range crowdTenants {
		tenant := fmt.Sprintf("t%d", i)
		for _, queue := range []string{"fax", "hook"} {
			name, want := tenant+" in "+queue, ""
			if name == "t3 in hook" {
				want = policysQueueCap
			}
			if limit := capped[tenant][queue]; limit > 0 {
				if row := fmt.Sprintf("%s=%d;%s", queue, limit, want); !strings.Contains(","+rows[tenant]+",", ","+row+",") {
					t.Errorf("%s keeps %q of %s, want %q among it", at.Partition.Base(), rows[tenant], name, row)
				}
				want = strconv.Itoa(limit)
				lines = append(lines, fmt.Sprintf("cap of %s %d", name, limit))
			}
			if limit, _, _ := strings.Cut(gates[string(store.TenantQueueGate(tenant, queue))], "|"); limit != want {
				t.Errorf("%s has a cap of %q of %s, want %q", at.Partition.Base(), limit, name, want)
			}
		}
	}
	return lines
}

// policysRate is what Redis has of the rate of t3 by the policy.
const policysRate = "100|1000000000"

// ratesOf tells the rates of tenants that are in force and what is left of them, and fails where another partition than the tenant's goes by a record's.
func ratesOf(ctx context.Context, t *testing.T, at *redisconn.Conn, rated map[string]bool) (lines []string) {
	t.Helper()
	rows, err := redisconn.Client(at).HGetAll(ctx, at.Partition.Dispatch()).Result()
	check(t, err)
	if counted, err := redisconn.Client(at).HGet(ctx, at.Partition.State(), "rd").Int(); len(rated) > 0 && err != nil || counted != len(rated) || len(rows) != len(rated) {
		t.Errorf("%s counts %d records with a dispatch, %v, and has %v for %v", at.Partition.Base(), counted, err, rows, rated)
	}
	gates, err := redisconn.Client(at).HGetAll(ctx, at.Partition.Gates()).Result()
	check(t, err)
	for i := range crowdTenants {
		tenant := fmt.Sprintf("t%d", i)
		want, own := "", ""
		if tenant == "t3" {
			want, own = policysRate, policysRate
		}
		rate, bucket := "", ""
		if gate := gates["r:"+tenant]; gate != "" {
			cut := strings.LastIndexByte(gate, '|')
			rate, bucket = gate[:cut], gate[cut+1:]
		}
		if rated[tenant] {
			of, aside, _ := strings.Cut(rows[tenant], ";")
			if want = strings.TrimPrefix(of, "-"); aside != own {
				t.Errorf("%s keeps %q as the policy's rate of %s, want %q", at.Partition.Base(), aside, tenant, own)
			}
			level, _, _ := strings.Cut(bucket, ":")
			lines = append(lines, fmt.Sprintf("rate of %s %s with %s", tenant, rate, level))
		}
		if rate != want {
			t.Errorf("%s lets %s dispatch at %q, want %q", at.Partition.Base(), tenant, rate, want)
		}
	}
	return lines
}

// scalesOf tells what is scaled in each partition, which is what it is over all.
func scalesOf(ctx context.Context, t *testing.T, s store.Deployment) (lines []string) {
	t.Helper()
	for i, part := range s.Partitions() {
		all, err := part.Scales(ctx)
		check(t, err)
		for _, one := range all {
			line := fmt.Sprintf("scaled %s to %g by %s, %s, for an hour %t", one.Target, one.Part, one.Author, one.Reason, time.Until(one.Until) > 30*time.Minute)
			if tenant, ofTenant := one.Target.Tenant(); !ofTenant && i == 0 || ofTenant && s.PartitionOf(tenant) == i {
				lines = append(lines, line)
			} else if ofTenant {
				t.Errorf("partition %d, which is not the tenant's, has %s", i, line)
			}
		}
		if !slices.ContainsFunc(all, func(one store.Scale) bool { return one.Target == store.ScaleAll }) {
			t.Errorf("partition %d does not know that all is scaled", i)
		}
	}
	return lines
}

func breakersOf(ctx context.Context, t *testing.T, s store.Deployment) (lines []string) {
	t.Helper()
	for i, part := range s.Partitions() {
		all, err := part.Breakers(ctx)
		check(t, err)
		gates, err := part.Gates(ctx)
		check(t, err)
		for _, b := range all {
			at := slices.IndexFunc(gates, func(g store.GateState) bool { return string(g.Name) == "b:"+b.Downstream })
			limit := 0
			if at >= 0 {
				limit = gates[at].Limit
			}
			lines = append(lines, fmt.Sprintf("breaker %s is %s, gate %t %d", b.Downstream, b.State, at >= 0, limit))
		}
		if len(all) == 0 {
			t.Errorf("partition %d has no breaker", i)
		}
	}
	return lines
}
