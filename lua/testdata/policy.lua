-- policy stores a new version of the policy: its text, the settings of queues, the weights of tenants.
-- KEYS[1] state  hash; the partition's other keys share its hash tag and are named after it
-- ARGV[1] now  microseconds, "" for Redis TIME
-- ARGV[2] expected  version that is in force
-- ARGV[3] version  of the new one
-- ARGV[4] text  JSON
-- ARGV[5] window  microseconds that ended ids are kept
-- ARGV[6] queues  number of Q
-- ARGV[7] bounds  number of B
-- ARGV[8] ...  Q times queue, setting; B times tenant:queue, overflow; then class:tenant, weight (an empty tenant is
--   everybody else)
-- Reply {"stored"} or {"conflict", version in force} or {"classes", queue}: jobs wait in a class that would go
-- Never moves a job: a new weight counts from a tenant's next dispatch.
-- luacheck: ignore 211
local STATE, NOW, EXPECTED, VERSION, TEXT, WINDOW = KEYS[1], ARGV[1], ARGV[2], ARGV[3], ARGV[4], tonumber(ARGV[5])
local QUEUES, BOUND_COUNT, QUEUES_AT = tonumber(ARGV[6]), tonumber(ARGV[7]), 8
-- state: the partition's one state hash, read in one HMGET and written in one HSET a call. Numbers are kept as
-- Lua numbers and written with %d where they are integers (below 2^53), else with %.17g: both are exact.
local P = string.sub(STATE, 1, -6)
local format, match = string.format, string.match
local st, dirty = {}, {}

local function state_load(fields)
  local values = redis.call('HMGET', STATE, unpack(fields))
  for i = 1, #fields do st[fields[i]] = values[i] end
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
-- time: Redis TIME in microseconds, read once; a test passes its own. Two clocks of the state follow it: `bt`, by
-- which buckets refill, never goes back, and `dc`, by which ended ids age, advances by at most STEP at a time.
-- A larger step of Redis TIME, either way, raises `step`, and promote then re-arms every registration.
local STEP = 5000000

local function now_us(given)
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
local function clock_advance(now)
  local last = state_num('t')
  local passed = now - last
  state_set('bt', bucket_time(now))
  if last > 0 and (passed > STEP or passed < -STEP) then state_set('step', 1) end
  if passed > STEP then passed = STEP end
  if passed > 0 then state_add('dc', passed) end
  state_set('t', now)
end
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

local function queue_open(name)
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
-- score: scores of a ZSET. The embedded store writes 8e+8, which its tonumber does not read.
local function score_of(s)
  return tonumber(s) or s + 0
end
-- due: timers, one ZSET by time. Members by their first byte:
--   w worker            its lease ends
--   d class:queue:tenant:downstream   the head of a lane with deadlines passes its own
--   g gate              a gate's time is over, or its waiters are not all awake yet
--   f pool              a fill that ran out of moves goes on
--   c pool              consumers are compared with registrations
--   o tenant:queue      spilled jobs that have room go on coming back
--   x job               the deadline of a spilled job passes
--   r queue             its oldest dead letter has been kept for long enough
--   s name              enqueueing is no longer suspended
-- Jobs that wait for a time stand in `later`. Whoever lowers the earliest time adds to `wake`, on which
-- schedulers block.
local DUE, LATER, WAKE = P .. 'due', P .. 'later', P .. 'wake'
local earliest

local function due_earliest()
  if not earliest then
    local a = redis.call('ZRANGE', DUE, 0, 0, 'WITHSCORES')[2]
    local b = redis.call('ZRANGE', LATER, 0, 0, 'WITHSCORES')[2]
    earliest = math.min(score_of(a or 9e15), score_of(b or 9e15))
  end
  return earliest
end

local function due_add(zset, at, member)
  local before = due_earliest()
  redis.call('ZADD', zset, format('%d', at), member)
  if at < before then
    earliest = at
    redis.call('XADD', WAKE, 'MAXLEN', 1, '*', 'at', format('%d', at))
  end
end
local now = now_us(NOW)

state_load({ 't', 'bt', 'dc', 'step', 'pv' })
clock_advance(now)
local current = state_get('pv') or '0'
if current == VERSION and redis.call('GET', P .. 'policy') == TEXT then return { 'stored' } end
if current ~= EXPECTED then return { 'conflict', current } end
local settings = {}
for i = 0, QUEUES - 1 do settings[ARGV[QUEUES_AT + 2 * i]] = ARGV[QUEUES_AT + 2 * i + 1] end
local old = redis.call('HGETALL', STATE)
local configured = {}
for i = 1, #old, 2 do
  local name = match(old[i], '^q:(.*)$')
  if name then
    local before, after = queue_open(name), { name = name }
    queue_config(after, settings[name] or DEFAULT_QUEUE)
    for c = 1, before.n do
      if before.waiting[c] > 0 and before.names[c] ~= after.names[c] then return { 'classes', name } end
    end
  end
  name = match(old[i], '^cfg:(.*)$')
  if name then configured[#configured + 1] = 'cfg:' .. name end
end
redis.call('DEL', P .. 'relief')
redis.call('SET', P .. 'policy', TEXT)
if #configured > 0 then redis.call('HDEL', STATE, unpack(configured)) end
for name, setting in pairs(settings) do
  redis.call('HSET', STATE, 'cfg:' .. name, setting)
  if redis.call('EXISTS', P .. 'dead:' .. name) == 1 then due_add(DUE, now, 'r' .. name) end
end
redis.call('UNLINK', P .. 'weights')
local count = 0
local BOUNDS_AT = QUEUES_AT + 2 * QUEUES
redis.call('UNLINK', P .. 'bounds')
for i = BOUNDS_AT, BOUNDS_AT + 2 * BOUND_COUNT - 1, 2 do redis.call('HSET', P .. 'bounds', ARGV[i], ARGV[i + 1]) end
for i = BOUNDS_AT + 2 * BOUND_COUNT, #ARGV, 2 do
  redis.call('HSET', P .. 'weights', ARGV[i], ARGV[i + 1])
  count = count + 1
end
state_set('pv', VERSION)
state_set('pat', state_num('bt'))
state_set('dw', WINDOW)
state_set('nw', count)
state_set('nb', BOUND_COUNT)
state_write()
return { 'stored' }
