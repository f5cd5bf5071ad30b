-- look tells where a job is and what it waits for.
-- KEYS[1] state  hash; the partition's other keys share its hash tag and are named after it
-- ARGV[1] now  microseconds, "" for Redis TIME
-- ARGV[2] key  of the job
-- Reply {place, record, name, value…}. Places: waiting (position; wait in microseconds, -1 for unknown; mode of its tenant;
--   blocked 1 where its lane stands behind the gate of its downstream; gate, of each closed one its name and text), later
--   (at), spilled (position; at, if it has a time of its own), ready (pool), running (pool, worker, token, since), dead (at,
--   why), ended, unknown; each with log, a line of history
-- Never writes.
-- luacheck: ignore 211
local STATE, NOW, KEY = KEYS[1], ARGV[1], ARGV[2]
local P = string.sub(STATE, 1, -6)
local format, match = string.format, string.match
local st, dirty = {}, {}
local state_load, state_get, state_num, state_set, state_add
do
-- state: the partition's one state hash, read in one HMGET and written in one HSET a call. Numbers are kept as
-- Lua numbers and written with %d where they are integers (below 2^53), else with %.17g: both are exact.
-- `partitions` says how many the deployment has, absent for one. Who takes it for another number is refused before it has
-- written anything: a migration may have moved what it looks for. layout.go puts another number there for others than one.

function state_load(fields)
  fields[#fields + 1] = 'partitions'
  local values = redis.call('HMGET', STATE, unpack(fields))
  for i = 1, #fields do st[fields[i]] = values[i] end
  local PARTITIONS = '1'
  local stored = st.partitions or '1'
  if stored ~= PARTITIONS then error('LAYOUT ' .. stored .. ' ') end
end

function state_get(field)
  local v = st[field]
  if v == nil then
    v = redis.call('HGET', STATE, field)
    st[field] = v
  end
  return v
end

function state_num(field)
  local v = tonumber(state_get(field) or 0)
  st[field] = v
  return v
end

function state_set(field, v)
  st[field] = v
  dirty[field] = true
end

function state_add(field, n)
  local v = state_num(field) + n
  state_set(field, v)
  return v
end

-- state_write writes what changed, in one HSET. A field set to false is removed.
local function state_write()
  local args, gone = {}, {}
  for field in pairs(dirty) do
    local v = st[field]
    if v == false then
      gone[#gone + 1] = field
    else
      args[#args + 1] = field
      if type(v) == 'number' then v = format(v % 1 == 0 and '%d' or '%.17g', v) end
      args[#args + 1] = v
    end
  end
  dirty = {}
  if #args > 0 then redis.call('HSET', STATE, unpack(args)) end
  if #gone > 0 then redis.call('HDEL', STATE, unpack(gone)) end
end
end
local gates_any
do
-- gates_any reports whether there are gates at all; without them nothing of gate.lua costs a call. It needs `ng` loaded.
function gates_any()
  return (st.ng or '') ~= ''
end

-- caps_version names the caps that there are, as `ng` counts them, their version, and that of the policy, with which caps of an older
-- release come; '' where there are none. What is dispatched without counting against one carries it: while it is the same, none
-- counts that job. It needs `pv` loaded, too.
local function caps_version()
  local counts = match(st.ng or '', '^[^|]*v%d+')
  return counts and string.gsub(counts, '[brs]%d+', '') .. '.' .. (st.pv or 0) or ''
end
end
local floor, sub, byte, char = math.floor, string.sub, string.byte, string.char
local number_at
do
-- bytes: integers as big-endian bytes.

local function u64(n)
  local high = floor(n / 4294967296)
  local low = n - high * 4294967296
  return char(floor(high / 16777216), floor(high / 65536) % 256, floor(high / 256) % 256, high % 256,
    floor(low / 16777216), floor(low / 65536) % 256, floor(low / 256) % 256, low % 256)
end

function number_at(s, at)
  local a, b, c, d, e, f, g, h = byte(s, at, at + 7)
  return (((a * 256 + b) * 256 + c) * 256 + d) * 4294967296 + ((e * 256 + f) * 256 + g) * 256 + h
end

local function cost_at(s, at)
  local a, b, c, d = byte(s, at, at + 3)
  return ((a * 256 + b) * 256 + c) * 256 + d
end
end
local bucket_settle, bucket_wait, bucket_fill, bucket_text
do
-- bucket: token buckets, the arithmetic of package buckets, operation for operation. Levels are micro-tokens,
-- rates micro-tokens a microsecond. A stored bucket is "level:stamp:fill:rate"; an absent one is full.
local rate_texts = {} -- texts of rates that are known, by rate

local function rate_text(rate)
  local text = rate_texts[rate]
  if not text then
    text = format('%.17g', rate)
    rate_texts[rate] = text
  end
  return text
end

-- bucket_settle brings a bucket {rate, burst} to what is stored of it as it stands at `now`, and returns it.
function bucket_settle(b, stored, changed_at, now)
  local rate, burst = b.rate, b.burst
  b.level, b.stamp = burst, now
  if not stored then return b end
  local level, stamp, span, old = match(stored, '^(%-?%d+):(%d+):(%d+):(.+)$')
  stamp, span = tonumber(stamp), tonumber(span)
  old = old == rate_texts[rate] and rate or tonumber(old)
  if stamp > now then stamp = now end
  local passed = now - stamp
  if passed >= span and rate >= old then return b end
  level = tonumber(level)
  if level > burst then level = burst end
  local gained
  if rate == old then
    gained = passed * rate
    if gained >= burst then return b end
    gained = floor(gained)
    stamp = stamp + math.min(passed, math.ceil(gained / rate))
  else
    local before = math.max(0, math.min(changed_at - stamp, passed))
    gained = before * math.min(rate, old) + (passed - before) * rate
    if gained >= burst then return b end
    gained = floor(gained)
    stamp = now
  end
  if level + gained >= burst then return b end
  b.level, b.stamp = level + gained, stamp
  return b
end

-- bucket_wait returns the microseconds until b holds cost.
function bucket_wait(b, cost, now)
  local need = cost - b.level
  local wait = b.stamp + math.ceil(need / b.rate) - now
  if wait < 1 then wait = 1 end
  if floor((wait + now - b.stamp) * b.rate) < need then wait = wait + 1 end
  return wait
end

function bucket_fill(b)
  return math.ceil((b.burst - b.level) / b.rate)
end

-- bucket_text needs what bucket_fill says.
function bucket_text(b, fill)
  return format('%d:%d:%d:', b.level, b.stamp, fill) .. rate_text(b.rate)
end
end
local GATES, MARKS, SHELVES, DISPATCH = P .. 'gates', P .. 'marks', P .. 'shelves', 1000000
local gate
local gate_closed, tenant_gates, lane_gates, gate_text
do
-- gate: the one mechanism of pause, breaker, cap and rate. Names, in the order in which they are asked, and what `gates`
-- maps them to:
--   q:QUEUE, t:TENANT, u:TENANT:QUEUE, d:DOWNSTREAM   "limit|held|until|then|reason": at most `limit` jobs in ready
--                   streams, 0 is a pause, NO_SHARE shut too (share.lua); `until` (microseconds, 0 for ever) `then` is the
--                   limit, empty for none
--   t:*, u:*:QUEUE, d:*         the same for each that has none of its own, whose held is kept as "*|held"
--   b:DOWNSTREAM                "limit|held|period": a breaker; only jobs dispatched in the period count
--   r:TENANT, s:DOWNSTREAM      "rate|burst|bucket": dispatches a second, in the units of bucket.lua
-- Lanes wait at h:DOWNSTREAM too, of which shelf.lua tells; `shelves` is the SET of those downstreams, `nh` how many.
-- `ng` says how many there are of each kind, so that kinds of which there are none cost nothing, and names the downstreams
-- with a b: where these have been few since there was none, so that others cost nothing either: b1t20v7|api. With each cap that
-- is new (q, t, u, d) their version v rises; `gv` keeps it where there are none. Waiters
-- stand in gw:GATE|CLASS:QUEUE by their tags; gq:GATE names the CLASS:QUEUE that have some. `marks` maps a job that
-- was dispatched under a breaker to "period|when, by the breaker's clock|downstream"; `nm` counts them.
local GATES_AT_ONCE = 1000 -- even, and below what unpack can return
local NO_GATES = {}
local gates, gates_dirty = {}, {}
local kinds, ill -- ill is the set of downstreams with a b:, false where it is not known

-- gate_kinds needs `ng` loaded.
local function gate_kinds()
  if not kinds then
    kinds = {}
    local counts, named, names = match(state_get('ng') or '', '^([^|]*)(|?)(.*)$')
    for kind, n in string.gmatch(counts, '(%a)(%d+)') do kinds[kind] = tonumber(n) end
    ill = (named ~= '' or not kinds.b) and {}
    for name in string.gmatch(names, '[^|]+') do ill[name] = true end
  end
  return kinds
end

-- gate_default names the gate of all that have none of their own.
local function gate_default(name)
  local kind = byte(name)
  if kind == 117 then return 'u:*' .. sub(name, string.find(name, ':', 3, true), -1) end
  if kind == 116 then return 't:*' end
  if kind == 100 then return 'd:*' end
end

local function gate_is_rate(name)
  local kind = byte(name)
  return kind == 114 or kind == 115
end


-- gate_parse returns the gate of a value, false for none: that of all where there is no value.
local function gate_parse(name, v)
  local limit, held, rest = '*', 0, nil
  if v then limit, held, rest = match(v, '^([^|]*)|([^|]*)|?(.*)$') end
  if limit == '*' then
    local default = gate_default(name)
    local g = default and default ~= name and gate(default)
    return g and { limit = g.limit, held = tonumber(held), default = true } or false
  end
  if gate_is_rate(name) then
    return bucket_settle({ rate = tonumber(limit), burst = tonumber(held) }, rest ~= '' and rest, 0, state_num('bt'))
  end
  return { limit = tonumber(limit), held = tonumber(held), rest = rest }
end

-- gate returns a gate, false for none.
function gate(name)
  local g = gates[name]
  if g == nil then
    g = gate_kinds()[sub(name, 1, 1)] and gate_parse(name, redis.call('HGET', GATES, name)) or false
    gates[name] = g
  end
  return g
end

-- gates_there returns those of some gates that there are. It needs them loaded.
local function gates_there(names)
  local there = NO_GATES
  for _, name in ipairs(names) do
    if gates[name] then
      if there == NO_GATES then there = {} end
      there[#there + 1] = name
    end
  end
  return there
end

-- gate_units returns how many more may pass.
local function gate_units(g)
  if g.burst then return floor(g.level / DISPATCH) end
  return g.limit - g.held
end

function gate_closed(name)
  local g = gate(name)
  return g and gate_units(g) <= 0
end

-- tenant_gates and lane_gates name what stands before a tenant in a queue, and before a lane: gates of the kinds of which
-- there are any, or of EVERY_KIND (everykind.lua). They are asked for each job, so `lane_names` keeps the latter.
local lane_names = {}

function tenant_gates(tenant, queue, of)
  local k = of or gate_kinds()
  if not (k.t or k.u or k.r) then return NO_GATES end
  local names = {}
  if k.t then names[#names + 1] = 't:' .. tenant end
  if k.u then names[#names + 1] = 'u:' .. tenant .. ':' .. queue end
  if k.r then names[#names + 1] = 'r:' .. tenant end
  return names
end

function lane_gates(downstream, of)
  if downstream == '' then return NO_GATES end
  local names = not of and lane_names[downstream]
  if names then return names end
  local k = of or gate_kinds()
  names = {}
  if k.d then names[#names + 1] = 'd:' .. downstream end
  if k.b and (of or not ill or ill[downstream]) then names[#names + 1] = 'b:' .. downstream end
  if k.s then names[#names + 1] = 's:' .. downstream end
  if not of then lane_names[downstream] = names end
  return names
end

-- gate_pass counts a dispatch under a gate that there is. It returns the period of a breaker.
local function gate_pass(name)
  local g = gate(name)
  gates_dirty[name] = true
  if g.burst then
    g.level = g.level - DISPATCH
  else
    g.held = g.held + 1
  end
  return byte(name) == 98 and g.rest or nil
end

function gate_text(g)
  if g.default then return format('*|%d', g.held) end
  if g.burst then return format('%.17g|%d|%s', g.rate, g.burst, bucket_text(g, bucket_fill(g))) end
  return format('%d|%d|%s', g.limit, g.held, g.rest)
end

local function gates_write()
  local texts, gone = {}, {}
  for name in pairs(gates_dirty) do
    local g = gates[name]
    if g and (g.held ~= 0 or not g.default) then
      texts[#texts + 1] = name
      texts[#texts + 1] = gate_text(g)
    else
      gone[#gone + 1] = name
    end
  end
  gates_dirty = {}
  for i = 1, #texts, GATES_AT_ONCE do redis.call('HSET', GATES, unpack(texts, i, math.min(#texts, i + GATES_AT_ONCE - 1))) end
  for i = 1, #gone, GATES_AT_ONCE do redis.call('HDEL', GATES, unpack(gone, i, math.min(#gone, i + GATES_AT_ONCE - 1))) end
end

local function gate_park(name, class, queue, tag, member)
  local line = class .. ':' .. queue
  redis.call('ZADD', P .. 'gw:' .. name .. '|' .. line, format('%.17g', tag), member)
  redis.call('SADD', P .. 'gq:' .. name, line)
  if byte(name) == 104 and redis.call('SADD', SHELVES, sub(name, 3)) == 1 then state_add('nh', 1) end
end

-- gate_tidy forgets a line of a gate whose last waiter has gone.
local function gate_tidy(name, line)
  if redis.call('EXISTS', P .. 'gw:' .. name .. '|' .. line) == 1 then return end
  redis.call('SREM', P .. 'gq:' .. name, line)
  if byte(name) == 104 and redis.call('EXISTS', P .. 'gq:' .. name) == 0 then
    state_add('nh', -redis.call('SREM', SHELVES, sub(name, 3)))
  end
end
end
-- jobs: the jobs hash, and the sets of ended ids: two generations, `en` and `eo` their sizes; the older goes when it
-- is a window old.
local JOBS = P .. 'jobs'

local function ended_key(generation)
  return P .. 'ended:' .. format('%d', generation)
end
-- group: the consumer group of every ready stream.
local GROUP = 'g'
local COST_AT, QUEUE_AT = 31, 37
local record_queue, record_lane
do
-- header: a job's value in the jobs hash. Bytes, counted from 1:
--   1 version · 2 flags · 3 class, from 0 · 4 attempts · 5 max attempts · 6 suspicion: 0, or 1 + the deliveries lost that
--   count · 7-14 seq · 15-22 score, 23-30 arrival, in microseconds · 31-34 cost in tokens · 35 length of queue · 36 length
--   of downstream · 37 queue, downstream, and the body, opaque here
-- Flags: 1 has a deadline · 2 payload under a key of its own · 4 the deadline is its queue's longest wait · 8 counts in
-- the depth of its tenant and queue · 32 has a history · 16 and 64 a unique key, released: 16 at the end, 64 at the start, both when
-- its time is over · 128 on the way into admit, and while spilled: starts later.
-- Integers are big-endian. A lane's member is seq (8 bytes), cost (4), id.
local LARGE, TIMED, COUNTED, UNIQUE_END, HISTORY, UNIQUE_START = 2, 4, 8, 16, 32, 64

local function has_flag(flags, bit)
  return floor(flags / bit) % 2 == 1
end

local function record_has(rec, bit)
  return has_flag(byte(rec, 2), bit)
end

local function record_flagged(rec, bit)
  if record_has(rec, bit) then return rec end
  return sub(rec, 1, 1) .. char(byte(rec, 2) + bit) .. sub(rec, 3)
end

function record_queue(rec)
  return sub(rec, QUEUE_AT, QUEUE_AT + byte(rec, 35) - 1)
end

-- record_lane returns the lane that a record's deadline and downstream name.
function record_lane(rec)
  local _, flags = byte(rec, 1, 2)
  local queue_length, downstream_length = byte(rec, 35, 36)
  local at = QUEUE_AT + queue_length
  return (flags % 2 == 1 and 'd' or 'n') .. sub(rec, at, at + downstream_length - 1)
end
end
-- record: reads what header.lua draws.
local function record_read(rec)
  local _, flags, class, attempts, max, suspicion = byte(rec, 1, 6)
  return {
    flags = flags, class = class, attempts = attempts, max = max, suspicion = suspicion,
    score = number_at(rec, 15),
    queue = record_queue(rec),
    lane = record_lane(rec),
    order = sub(rec, 7, 14) .. sub(rec, COST_AT, COST_AT + 3),
  }
end

local function key_split(key)
  return match(key, '^([^:]*):(.*)$')
end
-- score: scores of a ZSET. The embedded store writes 8e+8, which its tonumber does not read.
local function score_of(s)
  return tonumber(s) or s + 0
end
local queue_open
do
-- queue: a queue's settings and dynamics. State fields:
--   cfg:QUEUE    name=weight,…|horizon|expired|wait|overflow|poison|age|letters    set by policy; the default is
--                below: classes, microseconds, dead or drop, the longest wait in microseconds (0 for none), what
--                depth.lua says of overflow, lost deliveries that make a job poison, how long dead letters are kept in
--                microseconds (0 for ever) and how many
--   q:QUEUE      cur|left|pace|stamp|V₁|n₁|V₂|n₂…   the pattern's phase; the microseconds from one dispatch to
--                the next while jobs wait, and the time of the last (0 when none does); of each class the virtual
--                time and the number of waiting jobs
--   nq           the number of queues that have a q: field
--   pools:QUEUE  ids of the pools that serve it, by spaces
-- Classes count from 1 here, from 0 in keys and records.
local DEFAULT_QUEUE = 'high=3,medium=2,low=1|3600000000|dead|0|-|3|0|100000'
local queues = {}

local function queue_config(q, text)
  local classes, horizon, expired, wait, overflow, rest = match(text, '^([^|]*)|(%d+)|(%a+)|(%d+)|([^|]*)|(.*)$')
  q.horizon, q.expired, q.wait, q.overflow, q.rest = tonumber(horizon), expired, tonumber(wait), overflow, rest
  q.w, q.names, q.n = {}, {}, 0
  for class, weight in string.gmatch(classes, '([^=,]+)=(%d+)') do
    q.n = q.n + 1
    q.names[q.n], q.w[q.n] = class, tonumber(weight)
  end
end

-- queue_bounds reads what only few calls need.
local function queue_bounds(q)
  local poison, age, letters = match(q.rest, '^(%d+)|(%d+)|(%d+)$')
  return tonumber(poison), tonumber(age), tonumber(letters)
end

function queue_open(name)
  local q = queues[name]
  if q then return q end
  q = { name = name, classes = {}, V = {}, waiting = {}, dispatched = 0 }
  queue_config(q, state_get('cfg:' .. name) or DEFAULT_QUEUE)
  local v = state_get('q:' .. name)
  if v then
    local i = 0
    for x in string.gmatch(v, '[^|]+') do
      i = i + 1
      if i > 4 then
        local c = math.floor((i - 3) / 2)
        if i % 2 == 1 then q.V[c] = tonumber(x) else q.waiting[c] = tonumber(x) end
      elseif i == 1 then q.cur = tonumber(x)
      elseif i == 2 then q.left = tonumber(x)
      elseif i == 3 then q.pace = tonumber(x)
      else q.stamp = tonumber(x) end
    end
    if q.cur > q.n then q.cur, q.left = 1, q.w[1] end
  else
    q.cur, q.left, q.pace, q.stamp, q.fresh = 1, q.w[1], 0, 0, true
  end
  for c = 1, q.n do
    q.V[c] = q.V[c] or 0
    q.waiting[c] = q.waiting[c] or 0
  end
  queues[name] = q
  return q
end
end
local wait_guess
do
-- guess: how long a job waits.
-- class_ahead says how many jobs of its class are dispatched up to and with this one: of the tenants with a lower tag
-- one each, itself, and a round of all tenants for each job of its own before it; at most what waits. A tenant that
-- enters later goes behind the tags that are there. The lanes of a tenant that are open are taken to be as long as
-- the job's.
local OPEN = '(4000000000000000' -- below BLOCKED of lane.lua
local function class_ahead(q, c, path, position)
  if not path.runnable then
    local line = (c - 1) .. ':' .. q.name
    path.runnable = redis.call('ZCARD', P .. 'act:' .. line)
    local x = redis.call('HGET', P .. 'ten:' .. line, path.tenant)
    path.rank = x and redis.call('ZRANK', P .. 'act:' .. line, sub(x, 2, 9) .. path.tenant) or path.runnable
    path.lanes = 1
    if x and sub(x, 10) == '*' then
      path.lanes = math.max(1, redis.call('ZCOUNT', P .. 'lanes:' .. line .. ':' .. path.tenant, '-inf', OPEN))
    end
  end
  return math.min(q.waiting[c], path.rank + 1 + (position * path.lanes - 1) * path.runnable)
end

-- class_waits returns how many jobs of another class wait, 0 when all stand behind gates.
local function class_waits(q, i)
  if q.waiting[i] > 0 and gates_any() then
    q.runs = q.runs or {}
    q.runs[i] = q.runs[i] or redis.call('ZCARD', P .. 'act:' .. (i - 1) .. ':' .. q.name)
    if q.runs[i] == 0 then return 0 end
  end
  return q.waiting[i]
end

-- wait_guess guesses the wait of a job with a tenant, a queue and a class, from 1, at a position in its lane, in
-- microseconds, -1 for unknown: the dispatches up to and with its own, at the queue's pace, and the way to the
-- handler. The pattern is walked from its phase until the job's class has had what is ahead. Of what it gives another
-- class meanwhile, newcomers take half at most, or the class must have it waiting.
local DELIVERY = 500 -- microseconds
function wait_guess(path, position)
  local q, c = queue_open(path.queue), path.class
  if q.pace == 0 then return -1 end
  local all = class_ahead(q, c, path, position)
  local turns = math.ceil((all - (q.cur == c and q.left or 0)) / q.w[c])
  local passed = false -- the pattern has been at c: who comes now has had a turn less
  for k = 0, q.n - 1 do
    local i = (q.cur + k - 1) % q.n + 1
    if i == c then
      passed = k > 0
    elseif turns > 0 then
      local waits, served = class_waits(q, i), (passed and turns - 1 or turns) * q.w[i]
      if k == 0 then served = served - q.w[i] + q.left end
      if waits > 0 then all = all + math.min(served, waits + served / 2) end
    end
  end
  return math.floor(all * q.pace) + DELIVERY
end
end
local now_us, bucket_time
do
-- time: Redis TIME in microseconds, read once; a test passes its own. Two clocks of the state follow it: `bt`, by
-- which buckets refill, never goes back, and `dc`, by which ended ids age, advances by at most STEP at a time.
-- `step` is -1 after a larger step back, and 1 after a larger leap ahead: that is a step of the clock, or the time that nobody
-- called. Promote asks its caller, who has a clock of its own, which it was.
local STEP = 5000000

function now_us(given)
  if given ~= '' then return tonumber(given) end
  local t = redis.call('TIME')
  return t[1] * 1000000 + t[2]
end

-- bucket_time is Redis TIME less every step back so far. It needs `t` and `bt` loaded.
function bucket_time(now)
  local last = state_num('t')
  if last == 0 then return now end
  return state_num('bt') + math.max(0, now - last)
end

-- clock_advance needs `t`, `bt`, `dc` and `step` loaded.
local function clock_advance(now)
  local last = state_num('t')
  local passed = now - last
  state_set('bt', bucket_time(now))
  if last > 0 and passed < -STEP then state_set('step', -1) end
  if last > 0 and passed > STEP and state_num('step') == 0 then state_set('step', 1) end
  if passed > STEP then passed = STEP end
  if passed > 0 then state_add('dc', passed) end
  state_set('t', now)
end
end
local now = now_us(NOW)
local out = {}

local function tell(name, value)
  out[#out + 1] = name
  out[#out + 1] = value
end

local function microseconds(s)
  return format('%d', score_of(s))
end

-- entry_tell finds a job in a ready stream.
local function entry_tell()
  for id in string.gmatch(state_get('pools') or '', '%S+') do
    local ready = P .. 'ready:' .. id
    for _, e in ipairs(redis.call('XRANGE', ready, '-', '+')) do
      if e[2][2] == KEY then
        tell('pool', id)
        local pending = redis.call('XPENDING', ready, GROUP, e[1], e[1], 1)[1]
        if not pending then return 'ready' end
        tell('worker', pending[2])
        tell('token', e[1])
        tell('since', format('%d', now - pending[3] * 1000))
        return 'running'
      end
    end
  end
  return 'unknown'
end

-- gate_line is the text of a closed gate, of a rate with the time of the next dispatch instead of the bucket.
local function gate_line(g)
  if g.burst then return format('%.17g|%d|%d', g.rate, g.burst, now + bucket_wait(g, DISPATCH, state_num('bt'))) end
  return g.default and format('%d|%d|0||', g.limit, g.held) or gate_text(g)
end

-- lane_tell tells of a job in a lane, given its position there.
local function lane_tell(r, tenant, position)
  local cq = r.class .. ':' .. r.queue
  tell('position', position + 1)
  local x = redis.call('HGET', P .. 'ten:' .. cq, tenant)
  tell('mode', sub(x, 1, 1))
  tell('wait', format('%d', wait_guess({ tenant = tenant, queue = r.queue, class = r.class + 1 }, position + 1)))
  local at = redis.call('ZSCORE', P .. 'lanes:' .. cq .. ':' .. tenant, r.lane)
  if at and score_of(at) >= 4e15 then tell('blocked', '1') end
  if gates_any() then
    for _, names in ipairs({ lane_gates(sub(r.lane, 2)), tenant_gates(tenant, r.queue), { 'q:' .. r.queue } }) do
      for _, name in ipairs(names) do
        if gate_closed(name) then tell('gate', name .. '|' .. gate_line(gate(name))) end
      end
    end
  end
  return 'waiting'
end

local function place(rec)
  local r = record_read(rec)
  local tenant, id = key_split(KEY)
  local at = redis.call('ZSCORE', P .. 'later', KEY)
  if at then
    tell('at', microseconds(at))
    return 'later'
  end
  at = redis.call('ZSCORE', P .. 'dead', KEY)
  if at then
    tell('at', microseconds(at))
    tell('why', redis.call('HGET', P .. 'why', KEY))
    return 'dead'
  end
  local lane = P .. 'lane:' .. r.class .. ':' .. r.queue .. ':' .. tenant .. ':' .. r.lane
  local position = redis.call('ZRANK', lane, r.order .. id)
  if position then return lane_tell(r, tenant, position) end
  position = redis.call('ZRANK', P .. 'spill:' .. tenant .. ':' .. r.queue, KEY)
  if position then
    tell('position', position + 1)
    local start = redis.call('HGET', P .. 'starts', KEY)
    if start then tell('at', start) end
    return 'spilled'
  end
  return entry_tell()
end

state_load({ 'ng', 'pools', 'gen', 't', 'bt' })
st.bt = bucket_time(now)
local rec = redis.call('HGET', JOBS, KEY)
if not rec then
  for age = 0, 1 do
    if redis.call('SISMEMBER', ended_key(state_num('gen') - age), KEY) == 1 then return { 'ended', '' } end
  end
  return { 'unknown', '' }
end
local where = place(rec)
for _, line in ipairs(redis.call('LRANGE', P .. 'log:' .. KEY, 0, -1)) do tell('log', line) end
return { where, rec, unpack(out) }
