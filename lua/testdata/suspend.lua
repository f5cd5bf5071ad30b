-- suspend stops admission for a queue, a tenant or a tenant in a queue, or resumes it.
-- KEYS[1] state  hash; the partition's other keys share its hash tag and are named after it
-- ARGV[1] now  microseconds, "" for Redis TIME
-- ARGV[2] name  q:QUEUE, t:TENANT or u:TENANT:QUEUE
-- ARGV[3] duration  microseconds, 0 for ever, "" to resume
-- ARGV[4] reason  text that callers are told
-- Reply {"suspended"} or {"resumed"}
-- Never touches a job that has entered.
-- luacheck: ignore 211
local STATE, NOW, NAME, DURATION, REASON = KEYS[1], ARGV[1], ARGV[2], ARGV[3], ARGV[4]
local P = string.sub(STATE, 1, -6)
local format, match = string.format, string.match
local state_load, state_num, state_set, state_add, state_write
do
-- state: the partition's one state hash, read in one HMGET and written in one HSET a call. Numbers are kept as
-- Lua numbers and written with %d where they are integers (below 2^53), else with %.17g: both are exact.
-- `partitions` says how many the deployment has, absent for one. Who takes it for another number is refused before it has
-- written anything: a migration may have moved what it looks for. layout.go puts another number there for others than one.
local st, dirty = {}, {}

function state_load(fields)
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
function state_write()
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
  for _, field in ipairs({ 'seq', 'gen', 'en', 'ng', 'nm', 'nh', 'nw', 'nd', 'nc', 'nl', 'nb', 'pv' }) do
    fields[#fields + 1] = field
  end
  clock_begin(now, fields)
end
-- score: scores of a ZSET. The embedded store writes 8e+8, which its tonumber does not read.
local function score_of(s)
  return tonumber(s) or s + 0
end
local DUE, LATER, WAKE = P .. 'due', P .. 'later', P .. 'wake'
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
local earliest

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
-- suspended: names under which nothing is admitted, HASH name → until|reason, microseconds, 0 for ever. Names are those of
-- the gates of a queue, a tenant, a tenant in a queue. `np` counts them.
local SUSPENDED = P .. 'suspended'
-- relief: a first write that a full Redis allows, which frees the rest of the script from the check. Only admit,
-- which adds data, begins with one that a full Redis refuses, and finish with XACK, which it allows.
redis.call('DEL', P .. 'relief')
local now = now_us(NOW)

call_begin(now, { 'np' })
redis.call('ZREM', DUE, 's' .. NAME)
if DURATION == '' then
  redis.call('HDEL', SUSPENDED, NAME)
else
  local until_us = DURATION ~= '0' and now + DURATION or 0
  redis.call('HSET', SUSPENDED, NAME, format('%d|%s', until_us, REASON))
  if until_us > 0 then due_add(DUE, until_us, 's' .. NAME) end
end
state_set('np', redis.call('HLEN', SUSPENDED))
state_write()
return { DURATION == '' and 'resumed' or 'suspended' }
