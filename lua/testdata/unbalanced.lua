-- unbalanced names bounds over all partitions whose shares are to be looked at: more is wanted here than there is, the
-- share is not the even one, or less than it is in force.
-- KEYS[1] state  hash; the partition's other keys share its hash tag and are named after it
-- ARGV[1] now  microseconds, "" for Redis TIME
-- ARGV[2] cursor  of the last reply, "0" to begin anew
-- Reply {cursor, microseconds since shares were last looked at, -1 for never, owner of that ballot, names}
-- Never writes, or looks at more bounds than some PAGE.
-- luacheck: ignore 211
local STATE, NOW, CURSOR = KEYS[1], ARGV[1], ARGV[2]
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
do
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
end
local floor, sub, byte, char = math.floor, string.sub, string.byte, string.char
do
-- bytes: integers as big-endian bytes.

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
end
local bucket_settle, bucket_fill, bucket_text
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
local function bucket_wait(b, cost, now)
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
local GATES_AT_ONCE = 1000 -- even, and below what unpack can return
local gates, gates_dirty = {}, {}
local gate
local gate_kinds, gate_is_rate, gate_parse, gate_closed
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
local NO_GATES = {}
local kinds, ill -- ill is the set of downstreams with a b:, false where it is not known

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
local function gate_default(name)
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

local function tenant_gates(tenant, queue, of)
  local k = of or gate_kinds()
  if not (k.t or k.u or k.r) then return NO_GATES end
  local names = {}
  if k.t then names[#names + 1] = 't:' .. tenant end
  if k.u then names[#names + 1] = 'u:' .. tenant .. ':' .. queue end
  if k.r then names[#names + 1] = 'r:' .. tenant end
  return names
end

local function lane_gates(downstream, of)
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

local function gate_text(g)
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
-- gatesload: gates_load reads gates in one call.
local function gates_load(names)
  local k, fields, n = gate_kinds(), {}, 0
  for _, name in ipairs(names) do
    if gates[name] == nil and k[sub(name, 1, 1)] then
      gates[name], n = false, n + 1
      fields[n] = name
    end
  end
  if n == 0 then return end
  local values = redis.call('HMGET', GATES, unpack(fields))
  for i, name in ipairs(fields) do gates[name] = gate_parse(name, values[i]) end
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
local queue_weigh
do
-- weigh: how much is runnable. Of more than SAMPLE tenants with weights it looks at as many, at random, and takes the others
-- for alike. It needs `nw` loaded.
local SAMPLE = 64

-- tenants_weigh returns the sum of the weights of a class's runnable tenants.
local function tenants_weigh(q, c)
  local act = P .. 'act:' .. c - 1 .. ':' .. q.name
  local n = redis.call('ZCARD', act)
  if n == 0 or state_num('nw') == 0 then return n end
  local members = redis.call('ZRANDMEMBER', act, SAMPLE)
  local class = q.names[c] .. ':'
  local fields, sum = { class }, 0
  for _, member in ipairs(members) do fields[#fields + 1] = class .. string.sub(member, 9) end
  local weights = redis.call('HMGET', P .. 'weights', unpack(fields))
  for i = 2, #fields do sum = sum + tonumber(weights[i] or weights[1] or 1) end
  return sum * n / #members
end

-- queue_weigh tells of each class of a queue, by spaces, its weight in the pattern and what is runnable, by a colon; of a
-- queue that is shut, that nothing is.
function queue_weigh(q, shut)
  local classes = {}
  for c = 1, q.n do classes[c] = format('%d:%.17g', q.w[c], shut and 0 or tenants_weigh(q, c)) end
  return table.concat(classes, ' ')
end
end
local gate_hunger, hunger
do
-- hunger: who wants more of a bound than this partition's part of it.

-- global_level returns the level of the global bucket, what is missing to its burst, and its rate, as they stand at a time;
-- nothing where it is full. What is missing may be a little too much.
local function global_level(at)
  local level, stamp, span, rate = match(state_get('gb') or '', '^(%-?%d+):(%d+):(%d+):(.+)$')
  local passed = level and math.max(0, at - stamp)
  if not level or passed >= tonumber(span) then return nil end
  local gained = floor(passed * rate)
  return level + gained, math.max(0, span * rate - gained), tonumber(rate)
end

-- gate_hunger tells who waits at a gate, in the form of queue_weigh: of a queue whose cap is reached what is runnable there, of
-- a downstream how many waiters there are; nothing where nobody does, or where an operator has shut it.
function gate_hunger(name)
  if not gate_is_rate(name) and (not gate_closed(name) or gate(name).limit == 0) then return '' end
  if byte(name) == 113 then
    local q = queue_open(sub(name, 3))
    for c = 1, q.n do
      if redis.call('EXISTS', P .. 'act:' .. c - 1 .. ':' .. q.name) == 1 then return queue_weigh(q) end
    end
    return ''
  end
  local waiters = 0
  for _, line in ipairs(redis.call('SMEMBERS', P .. 'gq:' .. name)) do
    waiters = waiters + redis.call('ZCARD', P .. 'gw:' .. name .. '|' .. line)
  end
  return waiters > 0 and format('1:%d', waiters) or ''
end

-- hunger is gate_hunger for whatever may be shared. Nobody waits at the global bucket: below half it counts as wanted.
function hunger(name)
  if name ~= 'global' then return gate_hunger(name) end
  local level, missing = global_level(state_num('bt'))
  return level and level < math.max((level + missing) / 2, DISPATCH) and '1:1' or ''
end
end
local SHARES = P .. 'shares'
local share_parse, share_is_even, share_cap, share_in_force
do
-- share: bounds that all partitions divide among them. `shares` maps the gate of each to "whole|units|of|partitions": of the
-- whole that the policy allows, this partition has units/of, at first 1/partitions, and those of all partitions add up to 1 at
-- most (balance.go). The whole is empty where the policy has the bound no more. The global bucket has no gate: callers bring the
-- even part of its rate, and `gm` is the multiple of it that this partition has. Bursts stay divided evenly.

function share_parse(text)
  local whole, units, of, parts = match(text, '^([^|]*)|(%d+)|(%d+)|(%d+)$')
  return { whole = whole, units = tonumber(units), of = tonumber(of), parts = tonumber(parts) }
end

-- share_read returns what there is of a bound, nil for nothing.
local function share_read(name)
  local text = redis.call('HGET', SHARES, name)
  return text and share_parse(text) or nil
end

function share_is_even(s) return s.units * s.parts == s.of end

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
local PAGE = 200
local now = now_us(NOW)

-- share_is_short reports whether less of a cap is in force than there may be, as after an edit that raised it.
local function share_is_short(name, s)
  return not gate_is_rate(name) and (share_in_force(gate(name)) or share_cap(s)) < share_cap(s)
end

state_load({ 'ng', 'nw', 't', 'bt', 'gb', 'gm', 'sb' })
st.bt = bucket_time(now)
local owner, looked = match(state_get('sb') or '', '^%d+|([^|]*)|(%d+)$')
local found = redis.call('HSCAN', SHARES, CURSOR, 'COUNT', PAGE)
local out, names = { found[1], looked and format('%d', st.bt - looked) or '-1', owner or '' }, {}
for i = 1, #found[2], 2 do names[#names + 1] = found[2][i] end
for i = 1, #names, GATES_AT_ONCE do gates_load({ unpack(names, i, math.min(#names, i + GATES_AT_ONCE - 1)) }) end
for i, name in ipairs(names) do
  local s = share_parse(found[2][2 * i])
  if not share_is_even(s) or s.whole ~= '' and (gate_hunger(name) ~= '' or share_is_short(name, s)) then out[#out + 1] = name end
end
if CURSOR == '0' and (tonumber(state_get('gm') or 1) ~= 1 or hunger('global') ~= '') then out[#out + 1] = 'global' end
return out
