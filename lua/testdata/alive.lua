-- alive notes for how long a scheduler counts as live, or that it has gone.
-- KEYS[1] state  hash; the partition's other keys share its hash tag and are named after it
-- ARGV[1] now  microseconds, "" for Redis TIME
-- ARGV[2] scheduler  name
-- ARGV[3] life  microseconds from now, 0 when it has gone
-- Reply {"noted"}
-- Never keeps one whose life is over.
-- luacheck: ignore 211
local STATE, NOW, SCHEDULER, LIFE = KEYS[1], ARGV[1], ARGV[2], tonumber(ARGV[3])
local P = string.sub(STATE, 1, -6)
local format, match = string.format, string.match
local state_num, state_set, state_add
do
-- state: the partition's one state hash, read in one HMGET and written in one HSET a call. Numbers are kept as
-- Lua numbers and written with %d where they are integers (below 2^53), else with %.17g: both are exact.
-- `partitions` says how many the deployment has, absent for one. Who takes it for another number is refused before it has
-- written anything: a migration may have moved what it looks for. layout.go puts another number there for others than one.
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
local now_us
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
local SCHEDULERS, now = P .. 'schedulers', now_us(NOW)
redis.call('ZADD', SCHEDULERS, format('%d', now + LIFE), SCHEDULER)
redis.call('ZREMRANGEBYSCORE', SCHEDULERS, '-inf', format('%d', now))
redis.call('PEXPIRE', SCHEDULERS, math.ceil(LIFE / 1000) + 60000)
return { 'noted' }
