-- gate sets, changes or removes a gate: pause, breaker or cap of a queue, tenant, tenant in a queue, or downstream; or pauses what it
-- guards, or ends that. It tells the audit who did.
-- KEYS[1] state  hash; the partition's other keys share its hash tag and are named after it
-- ARGV[1] now  microseconds, "" for Redis TIME
-- ARGV[2] name  q:QUEUE, t:TENANT, u:TENANT:QUEUE or d:DOWNSTREAM
-- ARGV[3] limit  units, 0 for shut, "" for no gate; "pause" shuts it and leaves behind the cap that is in force, "resume" ends that
-- ARGV[4] duration  microseconds until `then` applies, 0 for ever
-- ARGV[5] then  limit after that, "" for no gate; a pause knows its own
-- ARGV[6] by  who does it and why, as fragments/audit.lua reads it
-- Reply {"set" | "more" | "none", units held}; "none" is for a resume where nothing is paused
-- Never moves a waiting job when a gate closes: what is stopped parks when it comes to the head.
-- luacheck: ignore 211
local STATE, NOW, NAME, LIMIT, DURATION, THEN, BY = KEYS[1], ARGV[1], ARGV[2], ARGV[3], tonumber(ARGV[4]), ARGV[5], ARGV[6]
-- state: the partition's one state hash, read in one HMGET and written in one HSET a call. Numbers are kept as
-- Lua numbers and written with %d where they are integers (below 2^53), else with %.17g: both are exact.
-- `partitions` says how many the deployment has, absent for one. Who takes it for another number is refused before it has
-- written anything: a migration may have moved what it looks for. layout.go puts another number there for others than one.
local P = string.sub(STATE, 1, -6)
local format, match = string.format, string.match
local st, dirty = {}, {}

local function state_load(fields)
  fields[#fields + 1] = 'partitions'
  local values = redis.call('HMGET', STATE, unpack(fields))
  for i = 1, #fields do st[fields[i]] = values[i] end
  local PARTITIONS = '1'
  local stored = st.partitions or '1'
  if stored ~= PARTITIONS then error('LAYOUT ' .. stored .. ' ') end
end

local function state_get(field)
  local v = st[field]
  if v == nil then
    v = redis.call('HGET', STATE, field)
    st[field] = v
  end
  return v
end

local function state_num(field)
  local v = tonumber(state_get(field) or 0)
  st[field] = v
  return v
end

local function state_set(field, v)
  st[field] = v
  dirty[field] = true
end

local function state_add(field, n)
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
local by_read, hold_reason, audit_act
do
-- audit: a stream with an entry for each thing that somebody did to the policy, to a gate, a suspension, a breaker or a bucket,
-- or to jobs as an operator. The script that acts writes it; nothing changes one but more of the same act. It has at most
-- KEPT_AUDIT entries, and `al` counts those that left.
local AUDIT, KEPT_AUDIT = P .. 'audit', 10000

local function audit_add(fields)
  redis.call('XADD', AUDIT, '*', unpack(fields))
  local gone = redis.call('XTRIM', AUDIT, 'MAXLEN', KEPT_AUDIT)
  if gone > 0 then state_add('al', gone) end
end

-- by_read reads who acts from "action\nact\nauthor\nsince\nreason", as actor.go writes it: act names what several calls do, and is
-- empty where nothing is to be told; since is when it was done, microseconds, empty for now.
function by_read(text)
  local action, act, author, since, reason = match(text, '^([^\n]*)\n([^\n]*)\n([^\n]*)\n(%d*)\n(.*)$')
  return { action = action, act = act, author = author, since = since, reason = reason }
end

-- hold_reason is the reason of a pause or a suspension with who gave it, and when.
function hold_reason(by, now)
  return by.reason .. '\1' .. (by.since ~= '' and by.since or format('%d', now)) .. '|' .. by.author
end

-- audit_act tells what was done to what a name says (that of a gate, of a job or of a scope), to how many jobs, and for how many
-- microseconds. What one act does in several calls is one entry, if it is among the last LOOK_BACK and no older than ACT_LASTS.
local LOOK_BACK, ACT_LASTS = 8, 600000000
function audit_act(now, by, name, n, duration)
  if by.act == '' then return end
  for _, entry in ipairs(redis.call('XREVRANGE', AUDIT, '+', '-', 'COUNT', LOOK_BACK)) do
    local at = {}
    for i = 1, #entry[2], 2 do at[entry[2][i]] = entry[2][i + 1] end
    if at.act == by.act and at.action == by.action and at.name == name and at.author == by.author and now - at.at < ACT_LASTS then
      n = n + tonumber(at.n)
      redis.call('XDEL', AUDIT, entry[1])
      break
    end
  end
  audit_add({
    'at', format('%d', now), 'action', by.action, 'name', name, 'n', format('%d', n), 'for', format('%d', duration or 0), 'author',
    by.author, 'reason', by.reason, 'act', by.act,
  })
end
end
local now_us, clock_advance
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
local function bucket_time(now)
  local last = state_num('t')
  if last == 0 then return now end
  return state_num('bt') + math.max(0, now - last)
end

-- clock_advance needs `t`, `bt`, `dc` and `step` loaded.
function clock_advance(now)
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
-- begin: what scripts begin with that ask buckets alone.
local function clock_begin(now, fields)
  for _, field in ipairs({ 't', 'bt', 'dc', 'step' }) do fields[#fields + 1] = field end
  state_load(fields)
  clock_advance(now)
end
-- call: what every script begins with that moves jobs.
local function call_begin(now, fields)
  for _, field in ipairs({ 'seq', 'gen', 'en', 'ng', 'nm', 'nh', 'nw', 'nd', 'nc', 'nl', 'nb', 'pv', 'wl' }) do
    fields[#fields + 1] = field
  end
  clock_begin(now, fields)
end
-- gates_any reports whether there are gates at all; without them nothing of gate.lua costs a call. It needs `ng` loaded.
local function gates_any()
  return (st.ng or '') ~= ''
end

-- caps_version names the caps that there are, as `ng` counts them, their version, and that of the policy, with which caps of an older
-- release come; '' where there are none. What is dispatched without counting against one carries it: while it is the same, none
-- counts that job. It needs `pv` loaded, too.
local function caps_version()
  local counts = match(st.ng or '', '^[^|]*v%d+')
  return counts and string.gsub(counts, '[brs]%d+', '') .. '.' .. (st.pv or 0) or ''
end
-- bytes: integers as big-endian bytes.
local floor, sub, byte, char = math.floor, string.sub, string.byte, string.char

local function u64(n)
  local high = floor(n / 4294967296)
  local low = n - high * 4294967296
  return char(floor(high / 16777216), floor(high / 65536) % 256, floor(high / 256) % 256, high % 256,
    floor(low / 16777216), floor(low / 65536) % 256, floor(low / 256) % 256, low % 256)
end

local function number_at(s, at)
  local a, b, c, d, e, f, g, h = byte(s, at, at + 7)
  return (((a * 256 + b) * 256 + c) * 256 + d) * 4294967296 + ((e * 256 + f) * 256 + g) * 256 + h
end

local function cost_at(s, at)
  local a, b, c, d = byte(s, at, at + 3)
  return ((a * 256 + b) * 256 + c) * 256 + d
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
local NO_GATES = {}
local gates, gates_dirty = {}, {}
local kinds, ill -- ill is the set of downstreams with a b:, false where it is not known
local gate
local lane_names = {}
local gate_kinds, gate_default, gate_is_rate, gate_parse, gates_there, gate_units
local gate_closed, tenant_gates, lane_gates, gate_pass, gates_write, gate_park
local gate_tidy
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

-- gate_kinds needs `ng` loaded.
function gate_kinds()
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
function gate_default(name)
  local kind = byte(name)
  if kind == 117 then return 'u:*' .. sub(name, string.find(name, ':', 3, true), -1) end
  if kind == 116 then return 't:*' end
  if kind == 100 then return 'd:*' end
end

function gate_is_rate(name)
  local kind = byte(name)
  return kind == 114 or kind == 115
end


-- gate_parse returns the gate of a value, false for none: that of all where there is no value.
function gate_parse(name, v)
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
function gates_there(names)
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
function gate_units(g)
  if g.burst then return floor(g.level / DISPATCH) end
  return g.limit - g.held
end

function gate_closed(name)
  local g = gate(name)
  return g and gate_units(g) <= 0
end

-- tenant_gates and lane_gates name what stands before a tenant in a queue, and before a lane: gates of the kinds of which
-- there are any, or of EVERY_KIND (everykind.lua). They are asked for each job, so `lane_names` keeps the latter.

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
function gate_pass(name)
  local g = gate(name)
  gates_dirty[name] = true
  if g.burst then
    g.level = g.level - DISPATCH
  else
    g.held = g.held + 1
  end
  return byte(name) == 98 and g.rest or nil
end

local function gate_text(g)
  if g.default then return format('*|%d', g.held) end
  if g.burst then return format('%.17g|%d|%s', g.rate, g.burst, bucket_text(g, bucket_fill(g))) end
  return format('%d|%d|%s', g.limit, g.held, g.rest)
end

function gates_write()
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

function gate_park(name, class, queue, tag, member)
  local line = class .. ':' .. queue
  redis.call('ZADD', P .. 'gw:' .. name .. '|' .. line, format('%.17g', tag), member)
  redis.call('SADD', P .. 'gq:' .. name, line)
  if byte(name) == 104 and redis.call('SADD', SHELVES, sub(name, 3)) == 1 then state_add('nh', 1) end
end

-- gate_tidy forgets a line of a gate whose last waiter has gone.
function gate_tidy(name, line)
  if redis.call('EXISTS', P .. 'gw:' .. name .. '|' .. line) == 1 then return end
  redis.call('SREM', P .. 'gq:' .. name, line)
  if byte(name) == 104 and redis.call('EXISTS', P .. 'gq:' .. name) == 0 then
    state_add('nh', -redis.call('SREM', SHELVES, sub(name, 3)))
  end
end
end
local queues = {}
local queue_bounds, queue_open
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
function queue_bounds(q)
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
-- score: scores of a ZSET. The embedded store writes 8e+8, which its tonumber does not read.
local function score_of(s)
  return tonumber(s) or s + 0
end
local DUE, LATER, WAKE = P .. 'due', P .. 'later', P .. 'wake'
local earliest
local due_add
do
-- due: timers, one ZSET by time. Members by their first byte:
--   w worker            its lease ends
--   d class:queue:tenant:downstream   the head of a lane with deadlines passes its own
--   g gate              a gate's time is over, or a rate has a token
--   k gate              waiters of an open gate are not all awake yet
--   f pool              a fill that ran out of moves goes on
--   c pool              consumers are compared with registrations
--   o tenant:queue      spilled jobs that have room go on coming back
--   x job               the deadline of a spilled job passes
--   r queue             its oldest dead letter has been kept for long enough
--   s name              enqueueing is no longer suspended
--   b downstream        its breaker's state ends by time, or is to be looked at
-- Jobs that wait for a time stand in `later`. Whoever lowers the earliest time adds to `wake`, on which
-- schedulers block.

local function due_earliest()
  if not earliest then
    local a = redis.call('ZRANGE', DUE, 0, 0, 'WITHSCORES')[2]
    local b = redis.call('ZRANGE', LATER, 0, 0, 'WITHSCORES')[2]
    earliest = math.min(score_of(a or 9e15), score_of(b or 9e15))
  end
  return earliest
end

function due_add(zset, at, member)
  local before = due_earliest()
  redis.call('ZADD', zset, format('%d', at), member)
  if at < before then
    earliest = at
    redis.call('XADD', WAKE, 'MAXLEN', 1, '*', 'at', format('%d', at))
  end
end
end
-- jobs: the jobs hash, and the sets of ended ids: two generations, `en` and `eo` their sizes; the older goes when it
-- is a window old.
local JOBS = P .. 'jobs'

local function ended_key(generation)
  return P .. 'ended:' .. format('%d', generation)
end
-- leave: the way out of a job that owns nothing but its record. It goes from the jobs hash into the set of ended ids,
-- and a counter tells why. letter.lua has the other ways.
local ended, ended_keys = {}, {}

local function leave_plain(key, counter)
  state_add('left:' .. counter, 1)
  ended[#ended + 1] = key
end

-- leave_write ends the jobs named since the last call. It needs `gen` and `en` loaded.
local function leave_write()
  if #ended == 0 then return end
  redis.call('HDEL', JOBS, unpack(ended))
  redis.call('SADD', ended_key(state_num('gen')), unpack(ended))
  state_add('en', #ended)
  if #ended_keys > 0 then redis.call('UNLINK', unpack(ended_keys)) end
  ended, ended_keys = {}, {}
end
-- header: a job's value in the jobs hash. Bytes, counted from 1:
--   1 version · 2 flags · 3 class, from 0 · 4 attempts · 5 max attempts · 6 suspicion: 0, or 1 + the deliveries lost that
--   count · 7-14 seq · 15-22 score, 23-30 arrival, in microseconds · 31-34 cost in tokens · 35 length of queue · 36 length
--   of downstream · 37 queue, downstream, and the body, opaque here
-- Flags: 1 has a deadline · 2 payload under a key of its own · 4 the deadline is its queue's longest wait · 8 counts in
-- the depth of its tenant and queue · 32 has a history · 16 and 64 a unique key, released: 16 at the end, 64 at the start, both when
-- its time is over · 128 on the way into admit, and while spilled: starts later.
-- Integers are big-endian. A lane's member is seq (8 bytes), cost (4), id.
local COST_AT, QUEUE_AT = 31, 37
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

local function record_queue(rec)
  return sub(rec, QUEUE_AT, QUEUE_AT + byte(rec, 35) - 1)
end

-- record_lane returns the lane that a record's deadline and downstream name.
local function record_lane(rec)
  local _, flags = byte(rec, 1, 2)
  local queue_length, downstream_length = byte(rec, 35, 36)
  local at = QUEUE_AT + queue_length
  return (flags % 2 == 1 and 'd' or 'n') .. sub(rec, at, at + downstream_length - 1)
end
local depth_freed = {} -- name → 'left', or 'goes on' where moves ran out -- luacheck: ignore 241 (only a fill uses it)
local bound_open, depth_open, depth_add, job_size, depth_leave, old_add
local old_remove, depth_write
do
-- depth: the live jobs of a tenant in a queue, where these are bounded, HASH TENANT:QUEUE → jobs|bytes, and over all its
-- queues, TENANT: → jobs|bytes. Jobs say in their record that they count; the sum of them is `nl`. Dead letters and spilled jobs
-- do not count. Those counted by a release that had no TENANT: are in none. `old:TENANT:QUEUE` is a ZSET of the counted
-- jobs that wait in lanes, the lowest class first, then by arrival.
-- A bound is policy,jobs,bytes,spill,low: r reject, d drop oldest, s spill over; 0 jobs or bytes for no bound; how many
-- jobs may be spilled; per cent of the bounds at which they come back. Anything else is none; "-" is not said. `bounds`
-- (HASH, `nb` entries) has a tenant's own in a queue, TENANT:QUEUE, before the queue's, and *:* after it; and that of a
-- tenant over all its queues, TENANT, or * of every other.
local DEPTH, BOUNDS, CLASS_STEP = P .. 'depth', P .. 'bounds', 35184372088832
local depths, bounds = {}, {}

local function bound_read(text)
  local policy, most, bytes, spill, low = match(text or '', '^(%a),(%d+),(%d+),(%d+),(%d+)$')
  local b = policy and { policy = policy, jobs = tonumber(most), bytes = tonumber(bytes), spill = tonumber(spill),
    low = tonumber(low) / 100 } or false
  if b and b.jobs == 0 then b.jobs = math.huge end
  if b and b.bytes == 0 then b.bytes = math.huge end
  return b
end

function bound_open(tenant, queue)
  local name = tenant .. ':' .. queue
  local b = bounds[name]
  if b == nil then
    local found = state_num('nb') > 0 and redis.call('HMGET', BOUNDS, name, '*:*', tenant, '*') or {}
    local own = queue_open(queue).overflow
    b = bound_read(found[1] or own ~= '-' and own or found[2])
    bounds[name], bounds[tenant] = b, bound_read(found[3] or found[4])
  end
  return b
end

-- total_bound returns what bounds a tenant over all its queues. bound_open has asked for it.
local function total_bound(tenant)
  return bounds[tenant]
end

local function depth_read(text)
  local count, bytes = match(text or '', '^(%d+)|(%d+)$')
  return { jobs = tonumber(count or 0), bytes = tonumber(bytes or 0) }
end

-- depth_open returns the depth of a name, and that of its tenant over all.
function depth_open(name)
  local all = match(name, '^[^:]*:')
  if not depths[name] then
    local found = redis.call('HMGET', DEPTH, name, all)
    depths[name], depths[all] = depth_read(found[1]), depths[all] or depth_read(found[2])
  end
  return depths[name], depths[all]
end

function depth_add(name, count, size)
  local d, all = depth_open(name)
  d.jobs, d.bytes, d.dirty = d.jobs + count, d.bytes + size, true
  all.jobs, all.bytes, all.dirty = math.max(0, all.jobs + count), math.max(0, all.bytes + size), true
  state_add('nl', count)
  if count < 0 then depth_freed[name] = depth_freed[name] or 'left' end
end

local function depth_name(key, rec)
  return match(key, '^[^:]*') .. ':' .. record_queue(rec)
end

-- job_size returns the bytes of a job as it is stored.
function job_size(key, rec)
  return #rec + (record_has(rec, LARGE) and redis.call('STRLEN', P .. 'large:' .. key) or 0)
end

-- depth_leave takes a job out of the depth that it counts in.
function depth_leave(key, rec)
  if record_has(rec, COUNTED) then depth_add(depth_name(key, rec), -1, -job_size(key, rec)) end
end

-- old_add and old_remove follow a counted job into and out of its lane.
function old_add(key, rec)
  if not record_has(rec, COUNTED) then return end
  local score = (127 - byte(rec, 3)) * CLASS_STEP + number_at(rec, 7)
  redis.call('ZADD', P .. 'old:' .. depth_name(key, rec), format('%d', score), key)
end

function old_remove(key, rec)
  if record_has(rec, COUNTED) then redis.call('ZREM', P .. 'old:' .. depth_name(key, rec), key) end
end

function depth_write()
  local args, gone = {}, {}
  for name, d in pairs(depths) do
    if d.dirty and d.jobs > 0 then
      args[#args + 1], args[#args + 2] = name, format('%d|%d', d.jobs, d.bytes)
    elseif d.dirty then
      gone[#gone + 1] = name
    end
    d.dirty = false
  end
  if #args > 0 then redis.call('HSET', DEPTH, unpack(args)) end
  if #gone > 0 then redis.call('HDEL', DEPTH, unpack(gone)) end
end
end
local unique_release, leave, job_gone, dead_letter
do
-- letter: dead letters stay in the jobs hash, stand in `dead`, in their queue's `dead:QUEUE` and in `letters:TENANT:QUEUE` by their
-- time, and `why` keeps their reason. ZSETs count them: `deadof` and `deadof:QUEUE` of each tenant, `deadin:TENANT` of each queue.
-- Letters of a release that did not count them are in none of these four.
-- `unique:TENANT:KEY` names the job that holds a unique key, `ukeys` the key that a job is to release.
local DEAD, WHY, UKEYS = P .. 'dead', P .. 'why', P .. 'ukeys'
local DEAD_CAP = 100000

function unique_release(key)
  local name = redis.call('HGET', UKEYS, key)
  if not name then return end
  redis.call('HDEL', UKEYS, key)
  if redis.call('GET', P .. 'unique:' .. name) == key then redis.call('DEL', P .. 'unique:' .. name) end
end

-- suspect_forget forgets the group of a job that was lost with a worker (reclaim.lua).
local function suspect_forget(key, rec)
  if byte(rec, 6) > 0 then redis.call('HDEL', P .. 'suspects', key) end
end

-- leave ends a job with all that it owns.
function leave(key, counter, rec)
  leave_plain(key, counter)
  suspect_forget(key, rec)
  depth_leave(key, rec)
  if record_has(rec, LARGE) then ended_keys[#ended_keys + 1] = P .. 'large:' .. key end
  if record_has(rec, HISTORY) then ended_keys[#ended_keys + 1] = P .. 'log:' .. key end
  if record_has(rec, UNIQUE_END) ~= record_has(rec, UNIQUE_START) then unique_release(key) end
end

-- job_gone counts a job that was met in its place, of a queue, and has no record: somebody, or a lost slot, has taken that away.
function job_gone(key, queue)
  local name = match(key, '^[^:]*') .. ':' .. queue
  if redis.call('ZREM', P .. 'old:' .. name, key) == 1 then
    local d = depth_open(name)
    depth_add(name, -1, -floor(d.bytes / math.max(1, d.jobs))) -- its size is not known
  end
  leave_plain(key, 'record_gone')
end

-- letter_count counts letters of a tenant in a queue.
local function letter_count(tenant, queue, n)
  for zset, member in pairs({ [P .. 'deadof'] = tenant, [P .. 'deadof:' .. queue] = tenant, [P .. 'deadin:' .. tenant] = queue }) do
    if score_of(redis.call('ZINCRBY', zset, n, member)) <= 0 then redis.call('ZREM', zset, member) end
  end
end

-- letter_place puts a job among the dead.
local function letter_place(key, rec, at, why)
  local tenant, queue = match(key, '^[^:]*'), record_queue(rec)
  redis.call('ZADD', DEAD, at, key)
  redis.call('ZADD', P .. 'dead:' .. queue, at, key)
  redis.call('ZADD', P .. 'letters:' .. tenant .. ':' .. queue, at, key)
  redis.call('HSET', WHY, key, why)
  letter_count(tenant, queue, 1)
  return state_add('nd', 1)
end

-- letter_remove takes a dead letter out of its places, not out of the jobs hash. One without a record is looked for in all queues of
-- its tenant, unless its queue is named.
local function letter_remove(key, rec, named)
  local tenant = match(key, '^[^:]*')
  redis.call('HDEL', WHY, key)
  state_add('nd', -redis.call('ZREM', DEAD, key))
  local among = rec and { record_queue(rec) } or named and { named } or redis.call('ZRANGE', P .. 'deadin:' .. tenant, 0, -1)
  for _, queue in ipairs(among) do
    redis.call('ZREM', P .. 'dead:' .. queue, key)
    if redis.call('ZREM', P .. 'letters:' .. tenant .. ':' .. queue, key) == 1 then letter_count(tenant, queue, -1) end
  end
end

-- letter_end ends a dead letter for good and returns its queue, nil where nobody knows.
local function letter_end(key, counter, named)
  local rec = redis.call('HGET', JOBS, key)
  letter_remove(key, rec, named)
  if not rec then
    leave_plain(key, 'record_gone')
    return named
  end
  leave(key, counter, rec)
  return record_queue(rec)
end

-- letter_evict ends a letter of those in a ZSET for that of a tenant that has just come: the oldest of the tenant that has the
-- most, the newcomer's own where none has more; of no tenant with one alone, unless more tenants have one than there is room for.
-- Those that nobody counts go first.
local function letter_evict(tenant, queue)
  local of = queue and ':' .. queue or ''
  local oldest = redis.call('ZRANGE', DEAD .. of, 0, 0)[1]
  local rec = redis.call('HGET', JOBS, oldest)
  local counted = rec and P .. 'letters:' .. match(oldest, '^[^:]*') .. ':' .. record_queue(rec)
  local most = redis.call('ZREVRANGE', P .. 'deadof' .. of, 0, 0, 'WITHSCORES')
  if counted and score_of(most[2]) > 1 and redis.call('ZSCORE', counted, oldest) then
    local own = score_of(redis.call('ZSCORE', P .. 'deadof' .. of, tenant))
    local who = own == score_of(most[2]) and tenant or most[1]
    local where = queue or redis.call('ZREVRANGE', P .. 'deadin:' .. who, 0, 0)[1]
    oldest = redis.call('ZRANGE', P .. 'letters:' .. who .. ':' .. where, 0, 0)[1]
  end
  letter_end(oldest, 'evicted', queue)
end

-- dead_letter keeps a job among the dead. At most one other letter, of its queue or of all, goes out for it, so that the store
-- stays within its caps.
function dead_letter(key, rec, reason, text, now)
  local tenant, queue = match(key, '^[^:]*'), record_queue(rec)
  local _, age, cap = queue_bounds(queue_open(queue))
  if record_has(rec, COUNTED) then
    depth_leave(key, rec)
    redis.call('HSET', JOBS, key, sub(rec, 1, 1) .. char(byte(rec, 2) - COUNTED) .. sub(rec, 3))
  end
  suspect_forget(key, rec)
  local all = letter_place(key, rec, format('%d', now), reason .. '|' .. text)
  state_add('dead:' .. reason, 1)
  if record_has(rec, UNIQUE_END) ~= record_has(rec, UNIQUE_START) then unique_release(key) end
  local count = redis.call('ZCARD', P .. 'dead:' .. queue)
  if age > 0 and count == 1 then due_add(DUE, now + age, 'r' .. queue) end
  if count > cap then
    letter_evict(tenant, queue)
  elseif all > DEAD_CAP then
    letter_evict(tenant)
  end
end
end
local BLOCKED, WAITS, RUNS = 4e15, P .. 'waits', P .. 'runs'
local pass_on, refill, waits, runs, widened = {}, {}, {}, {}, {}
local class_open, waiting_add, runs_add, lane_counted, waits_write, lane_key
local lanes_key, tenant_parse, tenant_text, tenant_open, tenant_write, tenant_enter
local tenant_several, lane_vanished, tenant_settle, deadline_timer, job_expire
do
-- lane: the waiting room of one class of one queue (CQ = CLASS:QUEUE).
--   lane:CQ:TENANT:LANE   ZSET of jobs by deadline, or by arrival + horizon; LANE = d or n, then the downstream
--   act:CQ                ZSET of runnable tenants by start tag; member = entry (8 bytes), tenant, so that ties
--                         go by the order of entering, not by names
--   idle:CQ               ZSET of kept tags above V of tenants that are not runnable
--   ten:CQ                HASH tenant → mode, entry (8 bytes), its only open lane, with a "+" before it if others stand
--                         behind gates, or * for none or several (behind a gate of the tenant, any number); modes:
--                         a runnable, b all lanes behind gates, t behind a gate of the tenant
--   lanes:CQ:TENANT       ZSET of the lanes that ten does not name, by head score; one behind a gate at + BLOCKED
--   waits                 HASH downstream → how many jobs wait for it in lanes
--   runs                  HASH CQ:DOWNSTREAM → how many runnable tenants have one open lane, which is of that downstream
--   wide                  ZSET CQ:TENANT by how many lanes it has, from WIDE_FROM on; `wl` counts them
local WIDE, LANE_CAP = P .. 'wide', 4096
local WIDE_FROM = LANE_CAP * 0.75

function class_open(q, c)
  local cl = q.classes[c]
  if not cl then
    local cq = (c - 1) .. ':' .. q.name
    cl = { q = q, c = c, cq = cq, act = P .. 'act:' .. cq, idle = P .. 'idle:' .. cq, ten = P .. 'ten:' .. cq,
      tenants = {} }
    q.classes[c] = cl
  end
  return cl
end

-- waiting_add counts jobs that enter a lane, or leave it.
function waiting_add(cl, lane, n)
  cl.q.waiting[cl.c] = cl.q.waiting[cl.c] + n
  if #lane > 1 then
    local downstream = sub(lane, 2)
    waits[downstream] = (waits[downstream] or 0) + n
  end
end

-- runs_add counts runnable tenants of one open lane.
function runs_add(cl, lane, n)
  if lane == '*' or #lane == 1 then return end
  local name = cl.cq .. ':' .. sub(lane, 2)
  runs[name] = (runs[name] or 0) + n
end

-- lane_counted has the lanes of a tenant counted, when one has been added to several or, where any tenant has many, taken away.
function lane_counted(cl, tenant, added)
  if added or state_num('wl') > 0 then widened[cl.cq .. ':' .. tenant] = P .. 'lanes:' .. cl.cq .. ':' .. tenant end
end

local function widths_write()
  for name, lanes in pairs(widened) do
    local n = redis.call('ZCARD', lanes)
    if n >= WIDE_FROM then
      redis.call('ZADD', WIDE, n, name)
    elseif state_num('wl') > 0 then
      redis.call('ZREM', WIDE, name)
    end
    if n >= WIDE_FROM or state_num('wl') > 0 then state_set('wl', redis.call('ZCARD', WIDE)) end
  end
  widened = {}
end

function waits_write()
  widths_write()
  for downstream, n in pairs(waits) do
    if n ~= 0 and redis.call('HINCRBY', WAITS, downstream, n) == 0 then redis.call('HDEL', WAITS, downstream) end
  end
  for name, n in pairs(runs) do
    if n ~= 0 and redis.call('HINCRBY', RUNS, name, n) == 0 then redis.call('HDEL', RUNS, name) end
  end
  waits, runs = {}, {}
end

function lane_key(cl, tenant, lane)
  return P .. 'lane:' .. cl.cq .. ':' .. tenant .. ':' .. lane
end

function lanes_key(cl, tenant)
  return P .. 'lanes:' .. cl.cq .. ':' .. tenant
end

function tenant_parse(v)
  if not v then return false end
  local beside = byte(v, 10) == 43 and '+' or ''
  return { mode = sub(v, 1, 1), entry = sub(v, 2, 9), beside = beside, lane = sub(v, 10 + #beside) }
end

function tenant_text(x)
  return x.mode .. x.entry .. x.beside .. x.lane
end

function tenant_open(cl, tenant)
  local x = cl.tenants[tenant]
  if x == nil then
    x = tenant_parse(redis.call('HGET', cl.ten, tenant))
    cl.tenants[tenant] = x
  end
  return x
end

function tenant_write(cl, tenant, x)
  cl.tenants[tenant] = x
  redis.call('HSET', cl.ten, tenant, tenant_text(x))
end

-- tenant_enter makes the tenant runnable: S = max(V, kept tag).
function tenant_enter(cl, tenant, x)
  local tag = cl.q.V[cl.c]
  local kept = redis.call('ZSCORE', cl.idle, tenant)
  if kept then
    tag = math.max(tag, score_of(kept))
    redis.call('ZREM', cl.idle, tenant)
  end
  x.mode, x.entry = 'a', u64(state_add('seq', 1))
  runs_add(cl, x.lane, 1)
  tenant_write(cl, tenant, x)
  redis.call('ZADD', cl.act, format('%.17g', tag), x.entry .. tenant)
  cl.q.touched = true
  refill[cl.q.name] = true
end

-- tenant_several gives a tenant of one open lane another.
function tenant_several(cl, tenant, x, lane, score)
  local head = redis.call('ZRANGE', lane_key(cl, tenant, x.lane), 0, 0, 'WITHSCORES')
  redis.call('ZADD', lanes_key(cl, tenant), head[2], x.lane, score, lane)
  if x.mode == 'a' then runs_add(cl, x.lane, -1) end
  x.lane, x.beside = '*', ''
  tenant_write(cl, tenant, x)
end

-- lane_vanished lets the units that a lane might have used go to other waiters.
function lane_vanished(lane)
  if not gates_any() then return end
  for _, name in ipairs(lane_gates(sub(lane, 2))) do
    if gate(name) then pass_on[name] = true end
  end
end

-- tenant_settle looks at the lanes of a tenant with *, names the only open one, and returns 'a' if any is open, 'b' if
-- none is, and false if there is no lane.
function tenant_settle(cl, tenant, x)
  local lanes = lanes_key(cl, tenant)
  local first = redis.call('ZRANGE', lanes, 0, 1, 'WITHSCORES')
  if not first[1] then return false end
  if score_of(first[2]) >= BLOCKED then return 'b' end
  if not first[3] or score_of(first[4]) >= BLOCKED then
    redis.call('ZREM', lanes, first[1])
    lane_counted(cl, tenant)
    x.beside, x.lane = first[3] and '+' or '', first[1]
    if x.mode == 'a' then runs_add(cl, x.lane, 1) end
    tenant_write(cl, tenant, x)
  end
  return 'a'
end

function deadline_timer(cl, tenant, lane)
  return 'd' .. cl.cq .. ':' .. tenant .. ':' .. sub(lane, 2)
end

-- job_expire ends a job whose deadline has passed, by its queue's policy.
function job_expire(q, key, rec, now)
  local reason = record_has(rec, TIMED) and 'queue_timeout' or 'expired'
  if q.expired == 'drop' then
    leave(key, reason, rec)
  else
    dead_letter(key, rec, reason, '', now)
  end
end
end
local MOVES = 64
local moves, more = MOVES, false
local moves_out, waiter_park, gate_wake
do
-- wake: waiters of a gate come back while it has free units: the lowest tags of each class of each queue, as
-- many as there are units; those of a rate, by a timer. Every waiter woken is a move; a script makes at most MOVES, and what is left goes
-- on from a timer.
--   wakes  HASH gate → when its timer k is due|CLASS:QUEUE from which on waiters are to wake: those before have had their turn
local WAKES = P .. 'wakes'
local CONTINUE_AFTER = 50000

function moves_out(timer, now)
  due_add(DUE, now + CONTINUE_AFTER, timer)
  more = true
end

-- rate_arm sets the timer of a rate that has nothing left but waiters.
local function rate_arm(name, now)
  local g = gate(name)
  if g and g.burst then due_add(DUE, now + bucket_wait(g, DISPATCH, state_num('bt')), 'g' .. name) end
end

-- waiter_park parks a waiter behind the first closed one of several gates, and reports whether there is one.
function waiter_park(cl, names, tag, member, now)
  for _, name in ipairs(names) do
    if gate_closed(name) then
      gate_park(name, cl.c - 1, cl.q.name, tag, member)
      rate_arm(name, now)
      return true
    end
  end
end

-- waiter_wake_tenant moves a tenant from the gate that opened to another one if that is closed.
local function waiter_wake_tenant(cl, tenant, tag, now)
  local x = tenant_open(cl, tenant)
  if waiter_park(cl, tenant_gates(tenant, cl.q.name), tag, tenant, now) then return end
  if x.lane == '*' and tenant_settle(cl, tenant, x) == 'b' then
    x.mode = 'b'
    tenant_write(cl, tenant, x)
  else
    tenant_enter(cl, tenant, x)
  end
end

-- waiter_wake_lane reports whether the lane may use the unit: not while it or its tenant stands behind another gate.
local function waiter_wake_lane(cl, member, tag, now)
  local tenant, lane = match(member, '^([^:]*):(.*)$')
  if waiter_park(cl, lane_gates(sub(lane, 2)), tag, member, now) then return false end
  local x = tenant_open(cl, tenant)
  local lanes = lanes_key(cl, tenant)
  local head = redis.call('ZRANGE', lane_key(cl, tenant, lane), 0, 0, 'WITHSCORES')
  if x.lane ~= '*' then
    tenant_several(cl, tenant, x, lane, head[2])
  elseif x.mode == 'b' then
    redis.call('ZREM', lanes, lane)
    x.beside, x.lane = redis.call('EXISTS', lanes) == 1 and '+' or '', lane
    tenant_enter(cl, tenant, x)
  else
    redis.call('ZADD', lanes, head[2], lane)
  end
  return x.mode == 'a'
end

-- gate_wake wakes as many waiters of each line as the gate has units, and at most `most`; only those of some queues, if
-- these are given; only those of the line `from` and those after it, if that is given. It returns how many have left the gate.
function gate_wake(name, now, most, only, from)
  local g = gate(name)
  local units = math.min(g and gate_units(g) or math.huge, most or math.huge)
  if byte(name) == 113 then
    if units > 0 then refill[sub(name, 3)] = true end
    return 0
  end
  if units <= 0 and not g.burst then return 0 end
  local lines = redis.call('SMEMBERS', P .. 'gq:' .. name)
  if units <= 0 then
    if #lines > 0 then rate_arm(name, now) end
    return 0
  end
  table.sort(lines)
  local left = 0
  for _, line in ipairs(lines) do
    local waiters = P .. 'gw:' .. name .. '|' .. line
    local class, queue = match(line, '^(%d+):(.*)$')
    local cl = class_open(queue_open(queue), class + 1)
    local woken = (only and not only[queue] or from and line < from) and units or 0
    while woken < units do
      if moves == 0 then
        if redis.call('EXISTS', waiters) == 1 then
          moves_out('k' .. name, now)
          redis.call('HSET', WAKES, name, format('%d|%s', now + CONTINUE_AFTER, line))
          return left
        end
        break
      end
      local w = redis.call('ZPOPMIN', waiters)
      if not w[1] then break end
      moves, left = moves - 1, left + 1
      if not match(name, '^[dbsh]') then
        waiter_wake_tenant(cl, w[1], score_of(w[2]), now)
        woken = woken + 1
      elseif waiter_wake_lane(cl, w[1], score_of(w[2]), now) then
        woken = woken + 1
      end
    end
    gate_tidy(name, line)
  end
  return left
end
end
local hold_add, hold_count, holds_write
do
-- holds: HASH POOL:DOWNSTREAM → how many entries of the pool's ready stream call the downstream.
local HOLDS = P .. 'holds'
local holds, hold_changes = {}, {}

function hold_add(pool_id, downstream, n)
  if downstream == '' then return end
  local name = pool_id .. ':' .. downstream
  hold_changes[name] = (hold_changes[name] or 0) + n
end

function hold_count(pool_id, downstream)
  local name = pool_id .. ':' .. downstream
  if not holds[name] then holds[name] = tonumber(redis.call('HGET', HOLDS, name) or 0) end
  return holds[name] + (hold_changes[name] or 0)
end

function holds_write()
  for name, n in pairs(hold_changes) do
    if n ~= 0 and redis.call('HINCRBY', HOLDS, name, n) <= 0 then redis.call('HDEL', HOLDS, name) end
  end
  holds, hold_changes = {}, {}
end
end
-- pool: workers that serve the same queues.
--   pool:POOL  slots|mode|cur|left|queue=weight,…   mode w weighted or s strict; pools names all
--   ready:POOL STREAM of entries j key, r record, p period of a breaker if there is one; group g
local pools = {}

local function pool_open(id)
  local p = pools[id]
  if p == nil then
    local v = state_get('pool:' .. id)
    p = false
    if v then
      local slots, mode, cur, left, spec = match(v, '^(%d+)|(%a)|(%d+)|(%d+)|(.*)$')
      p = { id = id, key = P .. 'ready:' .. id, slots = tonumber(slots), mode = mode, cur = tonumber(cur),
        left = tonumber(left), spec = spec, w = {}, queues = {}, n = 0 }
      for queue, weight in string.gmatch(spec, '([^=,]+)=(%d+)') do
        p.n = p.n + 1
        p.queues[p.n], p.w[p.n] = queue, tonumber(weight)
      end
    end
    pools[id] = p
  end
  return p
end

local function pool_write(p)
  state_set('pool:' .. p.id, format('%d|%s|%d|%d|%s', p.slots, p.mode, p.cur, p.left, p.spec))
end
local refill_pools, shelf_more = {}, {}
local share_left, must_shelve, shelf_passed, shelves_wake, pools_idle
do
-- shelf: a downstream that hangs must not take every slot. While a pool holds a SHARE of its slots for one downstream and
-- has other tenants that are runnable, lanes of that downstream that come to the head go on the shelf: they wait at
-- h:DOWNSTREAM, as behind a gate. One comes back for each entry that leaves, as far as the share goes, and for each
-- dispatch beyond it; and as many as there is room for when the pool has no other work.
local SHARE = 0.5

function share_left(pool, downstream)
  return math.max(1, floor(pool.slots * SHARE)) - hold_count(pool.id, downstream)
end

-- others_run reports whether the pool has a runnable tenant that does not call the downstream alone. pool.others keeps what
-- was found until a move changes it.
local function others_run(pool, downstream)
  if pool.others == downstream then return true end
  for i = 1, pool.n do
    local q = queue_open(pool.queues[i])
    for c = 1, q.n do
      local cl = class_open(q, c)
      local name = cl.cq .. ':' .. downstream
      local alone = tonumber(redis.call('HGET', RUNS, name) or 0) + (runs[name] or 0)
      local leaving = cl.plan and #cl.plan.gone or 0
      if redis.call('ZCARD', cl.act) - leaving > alone and not (gates_any() and gate_closed('q:' .. q.name)) then
        pool.others = downstream
        return true
      end
    end
  end
  return false
end

function must_shelve(pool, downstream)
  return not pool.idle and share_left(pool, downstream) <= 0 and others_run(pool, downstream)
end

-- shelf_passed lets a lane come back for a dispatch beyond the share.
function shelf_passed(pool, downstream)
  if downstream ~= '' and state_num('nh') > 0 and share_left(pool, downstream) < 0 then
    shelf_more[downstream] = (shelf_more[downstream] or 0) + 1
  end
end

function shelves_wake(now)
  local names = {}
  for name in pairs(shelf_more) do names[#names + 1] = name end
  table.sort(names)
  for _, name in ipairs(names) do gate_wake('h:' .. name, now, shelf_more[name]) end
  shelf_more = {}
end

-- pools_idle lets lanes come back in pools that have room and no other work, and reports whether there were any.
function pools_idle(now)
  if state_num('nh') == 0 then return false end
  local ids, woken = {}, 0
  for id, pool in pairs(pools) do
    if pool and pool.room then ids[#ids + 1] = id end
  end
  table.sort(ids)
  for _, id in ipairs(ids) do
    local pool, only = pools[id], {}
    for i = 1, pool.n do only[pool.queues[i]] = true end
    local downstreams = redis.call('SMEMBERS', SHELVES)
    table.sort(downstreams)
    for _, name in ipairs(downstreams) do woken = woken + gate_wake('h:' .. name, now, pool.room, only) end
    pool.idle, refill_pools[id] = true, true
  end
  return woken > 0
end
end
-- pattern: of Σ weights consecutive picks, w[i] are i's, in order, while all can run; one that cannot forfeits
-- the rest of its turn. pattern_next only looks; pattern_commit moves the phase.
local function pattern_next(p, can_run)
  if p.left > 0 and can_run(p, p.cur) then return p.cur end
  for k = 1, p.n do
    local i = (p.cur + k - 1) % p.n + 1
    if can_run(p, i) then return i end
  end
end

local function pattern_commit(p, i)
  if i == p.cur and p.left > 0 then
    p.left = p.left - 1
  else
    p.cur, p.left = i, p.w[i] - 1
  end
end
local queue_write
do
-- tally: what queues did in this call is written once.
local PACE_SPAN, PACE_STEP = 32, 3

-- queue_tally folds the dispatches of this call into the pace: an exponential average over PACE_SPAN dispatches of
-- the time between two, counted only while the queue is busy: jobs wait for room. An idle queue says nothing of how
-- fast it could be, nor does one whose jobs all stand behind gates. A time counts as PACE_STEP times the average at
-- most, or one pause would stand for many dispatches.
local function queue_tally(q, now)
  if q.dispatched > 0 and q.stamp > 0 and now > q.stamp then
    local pace = (now - q.stamp) / q.dispatched
    local old = q.pace > 0 and math.exp(-q.dispatched / PACE_SPAN) or 0
    if q.pace > 0 then pace = math.min(pace, PACE_STEP * q.pace) end
    q.pace = q.pace * old + pace * (1 - old)
  end
  if not q.busy then
    q.stamp = 0
  elseif q.stamp == 0 or q.dispatched > 0 or now < q.stamp then
    q.stamp = now
  end
  q.dispatched = 0
end

function queue_write(now)
  for name, q in pairs(queues) do
    if q.touched then
      if q.fresh then
        state_add('nq', 1)
        q.fresh = false
      end
      queue_tally(q, now)
      local parts = { q.cur, q.left, format('%.6g', q.pace), format('%d', q.stamp) }
      for c = 1, q.n do
        parts[#parts + 1] = format(q.V[c] % 1 == 0 and '%d' or '%.17g', q.V[c])
        parts[#parts + 1] = format('%d', q.waiting[c])
      end
      state_set('q:' .. name, table.concat(parts, '|'))
      q.touched = false
    end
  end
end
end
-- lane_place adds a job to its lane, and its tenant to the runnable set where nothing stands against it. It
-- returns the number of jobs in the lane.
local function lane_place(cl, tenant, lane, score, member)
  local key = lane_key(cl, tenant, lane)
  redis.call('ZADD', key, format('%d', score), member)
  local size = redis.call('ZCARD', key)
  waiting_add(cl, lane, 1)
  cl.q.touched = true
  local dated, x = byte(lane) == 100, tenant_open(cl, tenant)
  local first = size == 1 or (dated or x.lane ~= lane) and redis.call('ZRANK', key, member) == 0
  if first and dated then due_add(DUE, score + 1, deadline_timer(cl, tenant, lane)) end
  if not x then
    tenant_enter(cl, tenant, { beside = '', lane = lane })
  elseif first and x.lane ~= lane then
    local lanes = lanes_key(cl, tenant)
    if size > 1 then
      local blocked = score_of(redis.call('ZSCORE', lanes, lane)) >= BLOCKED
      redis.call('ZADD', lanes, format('%d', blocked and score + BLOCKED or score), lane)
    elseif x.lane ~= '*' then
      tenant_several(cl, tenant, x, lane, format('%d', score))
    elseif x.mode == 'b' then
      x.beside, x.lane = '+', lane
      tenant_enter(cl, tenant, x)
    else
      redis.call('ZADD', lanes, format('%d', score), lane)
      lane_counted(cl, tenant, true)
    end
  end
  return size
end
local spill_return
do
-- spill: jobs above the bound of their tenant in a queue wait in `spill:TENANT:QUEUE`, a ZSET by arrival, and come back in
-- that order once its depth is below the low-water mark; `spills` names those that hold some. A job with a deadline has
-- a timer x there. One that starts later says so in its record while it is spilled (DELAYED), and `starts` has the time.
local SPILLS, DELAYED = P .. 'spills', 128

-- spill_leave reports whether the job was spilled.
local function spill_leave(name, key)
  if redis.call('ZREM', P .. 'spill:' .. name, key) == 0 then return false end
  if redis.call('EXISTS', P .. 'spill:' .. name) == 0 then redis.call('SREM', SPILLS, name) end
  return true
end

-- spill_remove is spill_leave, with what a spilled job has besides.
local function spill_remove(name, key, rec)
  if not spill_leave(name, key) then return false end
  if record_has(rec, DELAYED) then redis.call('HDEL', P .. 'starts', key) end
  if byte(rec, 2) % 2 == 1 then redis.call('ZREM', DUE, 'x' .. key) end
  return true
end

-- spill_back brings one job back, if it has begun to wait, and reports whether that was into a lane.
local function spill_back(name, key, rec, size, now)
  local tenant, queue = match(name, '^([^:]*):(.*)$')
  local q, start = queue_open(queue), record_has(rec, DELAYED) and tonumber(redis.call('HGET', P .. 'starts', key))
  spill_remove(name, key, rec)
  if start then rec = sub(rec, 1, 1) .. char(byte(rec, 2) - DELAYED) .. sub(rec, 3) end
  if byte(rec, 2) % 2 == 1 and number_at(rec, 15) < now then
    job_expire(q, key, rec, now)
    return false
  end
  rec = record_flagged(rec, COUNTED)
  redis.call('HSET', JOBS, key, rec)
  depth_add(name, 1, size)
  if start and start > now then
    due_add(LATER, start, key)
    return false
  end
  old_add(key, rec)
  lane_place(class_open(q, byte(rec, 3) + 1), tenant, record_lane(rec), number_at(rec, 15), sub(rec, 7, 14)
    .. sub(rec, COST_AT, COST_AT + 3) .. match(key, ':(.*)$'))
  refill[queue] = true
  return true
end

-- spill_drain brings jobs of one name back while they fit, those that start later into `later`. It reports whether one
-- came back into a lane. What has begun below the low-water mark goes on above it.
local function spill_drain(name, goes_on, now)
  local tenant, queue = match(name, '^([^:]*):(.*)$')
  local b, d, back = bound_open(tenant, queue), depth_open(name), false
  if not goes_on and b and (d.jobs > b.jobs * b.low or d.bytes > b.bytes * b.low) then return false end
  while true do
    local key = redis.call('ZRANGE', P .. 'spill:' .. name, 0, 0)[1]
    if not key then return back end
    local rec = redis.call('HGET', JOBS, key)
    local size = rec and job_size(key, rec) or 0
    if b and d.jobs > 0 and (d.jobs + 1 > b.jobs or d.bytes + size > b.bytes) then return back end
    if moves == 0 then
      moves_out('o' .. name, now)
      return back
    end
    moves = moves - 1
    if rec then
      back = spill_back(name, key, rec, size, now) or back
    else
      spill_leave(name, key)
      redis.call('HDEL', P .. 'starts', key)
      job_gone(key, queue)
    end
  end
end

-- spill_return brings back what has room, and reports whether that makes a fill necessary.
function spill_return(now)
  local names, freed_by, back = {}, depth_freed, false
  for name in pairs(depth_freed) do names[#names + 1] = name end
  depth_freed = {}
  table.sort(names)
  for _, name in ipairs(names) do
    if redis.call('EXISTS', P .. 'spill:' .. name) == 1 then back = spill_drain(name, freed_by[name] == 'goes on', now) or back end
  end
  return back
end
end
local picks, dispatched = {}, {}
local fill
do
-- fill: the end of every script that makes room or makes a job runnable (law W). It serves the pools in
-- `refill_pools` and every pool of the queues in `refill`, up to MOVES moves in all. Order: the pool's
-- queues, the queue's class pattern, the tenant with the lowest start tag, its lane with the lowest head.
-- It plans in Lua and writes once: a class's plan holds its lowest tenants as read (`cand`, from `i`), those
-- that were served by their new tags (`line`, from `h`), and what to write.
local want = 1

-- tenants_gates returns the gates that there are before each of several tenants, nil where there are none before any. It
-- reads them in one call.
local function tenants_gates(of, queue)
  local k, names, n = gate_kinds(), {}, 0
  if not (k.t or k.u or k.r) then return nil end
  if k.t then names[1], n = 't:*', 1 end
  if k.u then names[n + 1], n = 'u:*:' .. queue, n + 1 end
  for _, tenant in ipairs(of) do
    if k.t then names[n + 1], n = 't:' .. tenant, n + 1 end
    if k.u then names[n + 1], n = 'u:' .. tenant .. ':' .. queue, n + 1 end
    if k.r then names[n + 1], n = 'r:' .. tenant, n + 1 end
  end
  local values, any = redis.call('HMGET', GATES, unpack(names)), false
  for i = 1, n do
    if values[i] or gates[names[i]] then any = true end
  end
  if not any then return nil end
  for i = 1, n do
    if gates[names[i]] == nil then gates[names[i]] = gate_parse(names[i], values[i]) end
  end
  local there = {}
  for i, tenant in ipairs(of) do there[i] = gates_there(tenant_gates(tenant, queue)) end
  return there
end

local function plan_more(cl, p)
  local k = math.max(want, p.loaded > 0 and 16 or 1)
  local r = redis.call('ZRANGE', cl.act, p.loaded, p.loaded + k - 1, 'WITHSCORES')
  local n = #r / 2
  p.loaded = p.loaded + n
  if n < k then p.all = true end
  if n == 0 then return end
  local names, weights = {}, nil
  for i = 1, n do names[i] = sub(r[2 * i - 1], 9) end
  local there = gates_any() and tenants_gates(names, cl.q.name)
  local values = redis.call('HMGET', cl.ten, unpack(names))
  if state_num('nw') > 0 then
    local class, fields = cl.q.names[cl.c] .. ':', {}
    for i = 1, n do fields[i] = class .. names[i] end
    fields[n + 1] = class
    weights = redis.call('HMGET', P .. 'weights', unpack(fields))
  end
  for i = 1, n do
    local x = cl.tenants[names[i]] or tenant_parse(values[i])
    cl.tenants[names[i]] = x
    x.name, x.member, x.gates = names[i], r[2 * i - 1], there and there[i] or NO_GATES
    x.tag, x.number = score_of(r[2 * i]), number_at(r[2 * i - 1], 1)
    x.weight = weights and tonumber(weights[i] or weights[n + 1] or 1) or 1
    p.cand[#p.cand + 1] = x
  end
end

-- plan_head returns the tenant with the lowest tag, ties by the order of entering.
local function plan_head(cl)
  local p = cl.plan
  if not p then
    p = { cand = {}, i = 1, loaded = 0, all = false, line = {}, h = 1, served = {}, gone = {} }
    cl.plan = p
  end
  if p.i > #p.cand and not p.all then plan_more(cl, p) end
  local a, b = p.cand[p.i], p.line[p.h]
  if a and b then
    if b.tag < a.tag or b.tag == a.tag and b.number < a.number then return b end
    return a
  end
  return a or b
end

local function plan_take(p, x)
  if p.cand[p.i] == x then p.i = p.i + 1 else p.h = p.h + 1 end
end

local function plan_put(p, x)
  p.served[x] = true
  local line, at = p.line, #p.line + 1
  while at > p.h and (line[at - 1].tag > x.tag or line[at - 1].tag == x.tag and line[at - 1].number > x.number) do
    line[at] = line[at - 1]
    at = at - 1
  end
  line[at] = x
end

-- plan_leave takes a tenant out for the reason in its mode: false when it has no job left.
local function plan_leave(cl, x, mode)
  local p = cl.plan
  plan_take(p, x)
  runs_add(cl, x.lane, -1)
  if mode == 'b' then x.beside, x.lane = '', '*' end
  p.served[x] = nil
  x.mode = mode
  p.gone[#p.gone + 1] = x
end

local function plan_write(cl)
  local p = cl.plan
  if not p then return end
  local V = cl.q.V[cl.c]
  local tags, out, kept, drained, modes = {}, {}, {}, {}, {}
  for x in pairs(p.served) do
    tags[#tags + 1] = format('%.17g', x.tag)
    tags[#tags + 1] = x.member
  end
  for _, x in ipairs(p.gone) do
    out[#out + 1] = x.member
    if x.tag > V then
      kept[#kept + 1] = format('%.17g', x.tag)
      kept[#kept + 1] = x.name
    end
    if x.mode then
      modes[#modes + 1] = x.name
      modes[#modes + 1] = tenant_text(x)
    else
      drained[#drained + 1] = x.name
      cl.tenants[x.name] = false
    end
  end
  if #tags > 0 then redis.call('ZADD', cl.act, unpack(tags)) end
  if #out > 0 then redis.call('ZREM', cl.act, unpack(out)) end
  if #modes > 0 then redis.call('HSET', cl.ten, unpack(modes)) end
  if #drained > 0 then redis.call('HDEL', cl.ten, unpack(drained)) end
  local left = p.line[p.h] or p.cand[p.i] or not p.all and redis.call('EXISTS', cl.act) == 1
  if not left then
    redis.call('UNLINK', cl.idle)
  else
    if #kept > 0 then redis.call('ZADD', cl.idle, unpack(kept)) end
    if #tags + #out > 0 then
      local passed = redis.call('ZRANGEBYSCORE', cl.idle, '-inf', format('%.17g', V), 'LIMIT', 0, 16)
      if #passed > 0 then redis.call('ZREM', cl.idle, unpack(passed)) end
    end
  end
  cl.plan = nil
end

local function queue_can_run(q, c)
  return q.waiting[c] > 0 and plan_head(class_open(q, c)) ~= nil
end

local function pool_can_run(p, i)
  local q = queue_open(p.queues[i])
  if gate_kinds().q and gate_closed('q:' .. q.name) then return false end
  return pattern_next(q, queue_can_run) ~= nil
end

local function pool_next(p)
  if p.mode == 'w' then return pattern_next(p, pool_can_run) end
  for i = 1, p.n do
    if pool_can_run(p, i) then return i end
  end
end

-- park_tenant parks x if a gate of its tenant is closed. Its open lanes leave their units to others.
local function park_tenant(cl, x, now)
  if not waiter_park(cl, x.gates, x.tag, x.name, now) then return false end
  plan_leave(cl, x, 't')
  if x.lane ~= '*' then
    lane_vanished(x.lane)
  else
    local open = redis.call('ZRANGEBYSCORE', lanes_key(cl, x.name), '-inf', '(' .. format('%d', BLOCKED))
    for _, lane in ipairs(open) do lane_vanished(lane) end
  end
  return true
end

-- park_lane parks a lane if one of the gates of its downstream is closed, or if it goes on the shelf. It leaves the units of
-- other gates to others.
local function park_lane(pool, cl, x, lane, stops, now)
  local downstream = sub(lane, 2)
  if not (stops[1] and waiter_park(cl, stops, x.tag, x.name .. ':' .. lane, now)) then
    if not must_shelve(pool, downstream) then return false end
    gate_park('h:' .. downstream, cl.c - 1, cl.q.name, x.tag, x.name .. ':' .. lane)
  end
  local lanes = lanes_key(cl, x.name)
  local head = redis.call('ZRANGE', lane_key(cl, x.name, lane), 0, 0, 'WITHSCORES')
  redis.call('ZADD', lanes, format('%d', score_of(head[2]) + BLOCKED), lane)
  lane_vanished(lane)
  if x.lane ~= '*' then
    plan_leave(cl, x, 'b')
  else
    pool.others = nil
    tenant_settle(cl, x.name, x)
  end
  return true
end

-- lane_popped settles x after a job was taken from its lane by fill: still there, behind gates, or drained.
local function lane_popped(cl, x, lane)
  local key, mode = lane_key(cl, x.name, lane), 'a'
  if x.lane == '*' then
    local lanes, head = lanes_key(cl, x.name), redis.call('ZRANGE', key, 0, 0, 'WITHSCORES')
    if head[1] then
      redis.call('ZADD', lanes, head[2], lane)
      return 'a'
    end
    redis.call('ZREM', lanes, lane)
    lane_counted(cl, x.name)
    tenant_settle(cl, x.name, x)
  elseif redis.call('EXISTS', key) == 1 then
    return 'a'
  else
    mode = x.beside ~= '' and 'b'
  end
  if byte(lane) == 100 then redis.call('ZREM', DUE, deadline_timer(cl, x.name, lane)) end
  return mode
end

-- gates_pass counts a pick under those of some gates that there are.
local function gates_pass(pick, names)
  for _, name in ipairs(names) do
    if gate(name) then
      pick.period = gate_pass(name) or pick.period
      if gate_is_rate(name) then
        pass_on[name] = true
      else
        pick.counted = true
      end
    end
  end
end

-- serve makes one move with the tenant at the head of a class and reports whether it was a dispatch.
local function serve(pool, cl, x, now)
  local q, gated = cl.q, gates_any()
  moves = moves - 1
  q.touched = true
  if x.gates[1] and park_tenant(cl, x, now) then
    pool.others = nil
    return false
  end
  local lane = x.lane
  if lane == '*' then lane = redis.call('ZRANGE', lanes_key(cl, x.name), 0, 0)[1] end
  local downstream = sub(lane, 2)
  local stops = gated and lane_gates(downstream) or NO_GATES
  if downstream ~= '' and park_lane(pool, cl, x, lane, stops, now) then return false end
  pool.others = nil
  local popped = redis.call('ZPOPMIN', lane_key(cl, x.name, lane))
  local member = popped[1]
  local key = x.name .. ':' .. sub(member, 13)
  waiting_add(cl, lane, -1)
  local mode = lane_popped(cl, x, lane)
  if byte(lane) == 100 and score_of(popped[2]) < now then
    local rec = redis.call('HGET', JOBS, key)
    if rec then
      old_remove(key, rec)
      job_expire(q, key, rec, now)
    else
      job_gone(key, q.name)
    end
    if mode ~= 'a' then
      plan_leave(cl, x, mode)
      lane_vanished(lane)
    elseif redis.call('EXISTS', lane_key(cl, x.name, lane)) == 0 then
      lane_vanished(lane)
    end
    return false
  end
  q.V[cl.c] = x.tag
  if mode == 'a' then
    plan_take(cl.plan, x)
    x.tag = x.tag + cost_at(member, 9) / x.weight
    plan_put(cl.plan, x)
  else
    x.tag = x.tag + cost_at(member, 9) / x.weight
    plan_leave(cl, x, mode)
  end
  local pick = { pool = pool, key = key, downstream = downstream, cl = cl }
  if gated then
    if stops[1] then gates_pass(pick, stops) end
    if x.gates[1] then gates_pass(pick, x.gates) end
    if gate_kinds().q then gates_pass(pick, { 'q:' .. q.name }) end
  end
  hold_add(pool.id, downstream, 1)
  shelf_passed(pool, downstream)
  q.dispatched = q.dispatched + 1
  picks[#picks + 1] = pick
  return true
end

-- queue_busy reports whether a class has runnable tenants.
local function queue_busy(q)
  for c = 1, q.n do
    local cl = class_open(q, c)
    local p = cl.plan
    -- A tenant that the plan still has answers it, without a look at those behind.
    if q.waiting[c] > 0 and (p and (p.line[p.h] or p.cand[p.i] or plan_head(cl)) or not p and redis.call('EXISTS', cl.act) == 1) then
      return true
    end
  end
  return false
end

-- fill_pool fills a pool's room and reports whether it is full, or the moves are out. Else pool.room is what is left.
local function fill_pool(pool, now)
  local room = pool.slots - redis.call('XLEN', pool.key)
  pool.room, pool.others = nil, nil
  while room > 0 do
    want = math.min(room, moves)
    local i = pool_next(pool)
    if not i then
      pool.room = room
      return false
    end
    if moves == 0 then
      moves_out('f' .. pool.id, now)
      return true
    end
    local q = queue_open(pool.queues[i])
    local c = pattern_next(q, queue_can_run)
    local cl = q.classes[c]
    if serve(pool, cl, plan_head(cl), now) then
      pattern_commit(q, c)
      if pool.mode == 'w' and pool.n > 1 then
        pattern_commit(pool, i)
        pool.touched = true
      end
      room = room - 1
    end
  end
  return true
end

-- record_stands_in for one that is gone. It has no body, so whoever takes the job makes a dead letter of it: `record_gone`.
local function record_stands_in(pick)
  local queue = pick.cl.q.name
  local rec = char(1, 0, pick.cl.c - 1, 0, 1, 0) .. string.rep('\0', 28) .. char(#queue, #pick.downstream) .. queue .. pick.downstream
  redis.call('HSET', JOBS, pick.key, rec)
  return rec
end

local function picks_write()
  if #picks == 0 then return end
  local keys = {}
  for i = 1, #picks do keys[i] = picks[i].key end
  local records = redis.call('HMGET', JOBS, unpack(keys))
  local uncounted = gates_any() and caps_version() or ''
  for i = 1, #picks do
    local period = picks[i].period
    records[i] = records[i] or record_stands_in(picks[i])
    if period then
      redis.call('HSET', MARKS, keys[i], format('%s|%d|%s', period, state_num('bt'), picks[i].downstream))
      state_add('nm', 1)
      redis.call('XADD', picks[i].pool.key, '*', 'j', keys[i], 'r', records[i], 'p', period)
    elseif uncounted ~= '' and not picks[i].counted then
      redis.call('XADD', picks[i].pool.key, '*', 'j', keys[i], 'r', records[i], 'u', uncounted)
    else
      redis.call('XADD', picks[i].pool.key, '*', 'j', keys[i], 'r', records[i])
    end
    local flags = byte(records[i], 2)
    old_remove(keys[i], records[i])
    if has_flag(flags, UNIQUE_START) and not has_flag(flags, UNIQUE_END) then unique_release(keys[i]) end
    dispatched[#dispatched + 1] = keys[i]
  end
end

local function fill_once(now)
  for name in pairs(refill) do
    for id in string.gmatch(state_get('pools:' .. name) or '', '%S+') do refill_pools[id] = true end
  end
  local ids = {}
  for id in pairs(refill_pools) do ids[#ids + 1] = id end
  table.sort(ids)
  refill, refill_pools = {}, {}
  for _, id in ipairs(ids) do
    local pool = pool_open(id)
    local full = pool and fill_pool(pool, now)
    for i = 1, pool and pool.n or 0 do
      local q = queues[pool.queues[i]]
      if q and q.touched then q.busy = full and queue_busy(q) end
    end
  end
  for _, q in pairs(queues) do
    for _, cl in pairs(q.classes) do plan_write(cl) end
  end
  picks_write()
  picks = {}
end

-- fill ends a script: it fills, passes units on, writes the state, and returns whether work is left for the
-- timers.
function fill(now)
  repeat
    repeat
      local names = {}
      for name in pairs(pass_on) do names[#names + 1] = name end
      table.sort(names)
      for _, name in ipairs(names) do
        pass_on[name] = nil
        gate_wake(name, now)
      end
      shelves_wake(now)
      fill_once(now)
    until not pools_idle(now) and next(pass_on) == nil and next(shelf_more) == nil
  until not spill_return(now)
  leave_write()
  depth_write()
  waits_write()
  holds_write()
  for _, pool in pairs(pools) do
    if pool and pool.touched then pool_write(pool) end
  end
  gates_write()
  queue_write(now)
  state_write()
  return more
end
end
local freed, shelf_freed = {}, {}
local freed_wake
do
-- freed: gates that have a unit more, or are gone, wake their waiters before the fill: name → true, or the line from which on.

-- shelves_pass_on lets a lane come back for each entry that left, as far as the share goes. shelf_freed counts them by
-- pool and downstream.
local function shelves_pass_on(now)
  local names = {}
  for name in pairs(shelf_freed) do names[#names + 1] = name end
  table.sort(names)
  for _, name in ipairs(names) do
    local id, downstream = match(name, '^([^:]*):(.*)$')
    local pool = state_num('nh') > 0 and pool_open(id)
    local units = pool and math.min(shelf_freed[name], share_left(pool, downstream)) or 0
    if units > 0 then gate_wake('h:' .. downstream, now, units) end
  end
  shelf_freed = {}
end

function freed_wake(now)
  local names = {}
  for name in pairs(freed) do names[#names + 1] = name end
  table.sort(names)
  for _, name in ipairs(names) do gate_wake(name, now, nil, nil, freed[name] ~= true and freed[name] or nil) end
  freed = {}
  shelves_pass_on(now)
end
end
local gate_count, gate_remove
do
-- gateset: gates come and go.
-- gate_count needs `ng` loaded. It names at most NAMED downstreams with a b:.
local NAMED = 8
function gate_count(name, n)
  local kind, parts, names = sub(name, 1, 1), {}, {}
  local left = (gate_kinds()[kind] or 0) + n
  kinds[kind], lane_names = left > 0 and left or nil, {}
  if n > 0 and string.find('qtud', kind, 1, true) then kinds.v = (kinds.v or state_num('gv')) + n end
  if kinds.v and not (kinds.q or kinds.t or kinds.u or kinds.d) then
    state_set('gv', kinds.v)
    kinds.v = nil
  end
  for k, count in pairs(kinds) do parts[#parts + 1] = format('%s%d', k, count) end
  table.sort(parts)
  if kind == 'b' then
    if left == 0 then ill = {} end
    if left > NAMED then ill = false end
    if ill then ill[sub(name, 3)] = n > 0 or nil end
  end
  for downstream in pairs(kinds.b and ill or {}) do names[#names + 1] = '|' .. downstream end
  table.sort(names)
  state_set('ng', #parts > 0 and table.concat(parts) .. table.concat(names) or false)
end

-- gate_remove takes a gate away. Where there is one for all that have none of their own, that one counts on.
function gate_remove(name)
  local g, default = gate(name), gate_default(name)
  if not g or g.default then return end
  gate_count(name, -1)
  local all = default and default ~= name and gate(default)
  gates[name] = all and { limit = all.limit, held = g.held, default = true } or false
  gates_dirty[name] = true
end
end
-- everykind: all kinds of gates, for whoever looks for what may outlast the last gate of its kind, as waiters do, or
-- precede the first.
local EVERY_KIND = { d = 1, b = 1, s = 1, t = 1, u = 1, r = 1, q = 1 }
-- capnames: the caps that a job in a ready stream counts against, of the kinds of which there are any or of EVERY_KIND.
local function cap_names(queue, tenant, downstream, of)
  local k, names = of or gate_kinds(), {}
  if k.q then names[#names + 1] = 'q:' .. queue end
  if k.t then names[#names + 1] = 't:' .. tenant end
  if k.u then names[#names + 1] = 'u:' .. tenant .. ':' .. queue end
  if k.d and downstream ~= '' then names[#names + 1] = 'd:' .. downstream end
  return names
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
-- held: what there is before a cap that is new. entries_count counts the entries of all ready streams by cap.
local function entries_count()
  local counts = {}
  for id in string.gmatch(state_get('pools') or '', '%S+') do
    for _, e in ipairs(redis.call('XRANGE', P .. 'ready:' .. id, '-', '+')) do
      local tenant = key_split(e[2][2])
      local r = record_read(e[2][4])
      for _, name in ipairs(cap_names(r.queue, tenant, sub(r.lane, 2), EVERY_KIND)) do counts[name] = (counts[name] or 0) + 1 end
    end
  end
  return counts
end
-- relief: a first write that a full Redis allows, which frees the rest of the script from the check. Only admit,
-- which adds data, begins with one that a full Redis refuses, and finish with XACK, which it allows.
redis.call('DEL', P .. 'relief')
local share_read, share_cap, share_in_force
do
-- share: bounds that all partitions divide among them. `shares` maps the gate of each to "whole|units|of|partitions": of the
-- whole that the policy allows, this partition has units/of, at first 1/partitions, and those of all partitions add up to 1 at
-- most (balance.go). The whole is empty where the policy has the bound no more. The global bucket has no gate: callers bring the
-- even part of its rate, and `gm` is the multiple of it that this partition has. Bursts stay divided evenly.
local SHARES = P .. 'shares'

local function share_parse(text)
  local whole, units, of, parts = match(text, '^([^|]*)|(%d+)|(%d+)|(%d+)$')
  return { whole = whole, units = tonumber(units), of = tonumber(of), parts = tonumber(parts) }
end

-- share_read returns what there is of a bound, nil for nothing.
function share_read(name)
  local text = redis.call('HGET', SHARES, name)
  return text and share_parse(text) or nil
end

local function share_is_even(s) return s.units * s.parts == s.of end

-- share_write forgets an even share of a bound that has gone: another one under its name begins with the same.
local function share_write(name, s)
  if s.whole == '' and share_is_even(s) then
    redis.call('HDEL', SHARES, name)
  else
    redis.call('HSET', SHARES, name, format('%s|%d|%d|%d', s.whole, s.units, s.of, s.parts))
  end
end

-- NO_SHARE is the limit of a cap of which this partition has no whole unit, as after an edit that lowered it far: shut until shares
-- are balanced, while 0 is a pause.
local NO_SHARE = -1

-- share_cap returns this partition's part of a cap.
function share_cap(s)
  local units = floor(tonumber(s.whole) * s.units / s.of)
  return units > 0 and units or NO_SHARE
end

-- share_in_force returns the limit of the gate of a cap, under a pause the one that it leaves behind; nothing where there is none.
function share_in_force(g)
  if not g or g.default then return nil end
  return g.limit ~= 0 and g.limit or tonumber((match(g.rest, '^%d+|(%-?%d*)|')))
end

-- share_rate returns this partition's part of a rate.
local function share_rate(s)
  return tonumber(s.whole) * s.units / s.of
end
end
local now = now_us(NOW)

call_begin(now, { 'pools' })
local by = by_read(BY)
local g, s = gate(NAME), share_read(NAME)
local own = g and not g.default
if LIMIT ~= 'pause' and LIMIT ~= 'resume' then
  redis.call('HDEL', STATE, 'ps') -- The gate is not what the policy says any more: the next edit looks.
end
if LIMIT == 'pause' then
  local left = own and share_in_force(g) or nil
  LIMIT, THEN = '0', left and left > 0 and format('%d', left) or ''
elseif LIMIT == 'resume' then
  if not own or g.limit ~= 0 then return { 'none', g and format('%d', g.held) or '0' } end
  LIMIT, THEN = match(g.rest, '^%d+|([^|]*)|'), ''
end
if s and s.whole ~= '' then -- who pauses or ends it may have read an older share
  local most = math.min(share_in_force(g) or share_cap(s), share_cap(s))
  if LIMIT == '0' then
    THEN = format('%d', most)
  else
    LIMIT = format('%d', math.min(tonumber(LIMIT) or most, most))
  end
end
redis.call('ZREM', DUE, 'g' .. NAME)
earliest = nil
if LIMIT == '' then
  gate_remove(NAME)
else
  if not own then
    gate_count(NAME, 1)
    g = { held = g and g.held or entries_count()[NAME] or 0 }
    gates[NAME] = g
  end
  local until_us = DURATION > 0 and now + DURATION or 0
  g.limit = tonumber(LIMIT)
  g.rest = format('%d|%s|', until_us, THEN) .. (LIMIT == '0' and hold_reason(by, now) or by.reason)
  gates_dirty[NAME] = true
  if until_us > 0 then due_add(DUE, until_us, 'g' .. NAME) end
end
audit_act(now, by, NAME, g and g.held or 0, DURATION)
freed[NAME] = true
freed_wake(now)
local continues = fill(now)
return { continues and 'more' or 'set', g and format('%d', g.held) or '0' }
