-- probing leases one of the rights of which a fleet has so many over all partitions: to run a probe of a half-open breaker, of
-- which each partition has one, or to share out a worker's slots. It is leased in the partition that the name picks.
-- KEYS[1] state  hash; the partition's other keys share its hash tag and are named after it
-- ARGV[1] now  microseconds, "" for Redis TIME
-- ARGV[2] downstream  name, or what else the right is for
-- ARGV[3] token  of the probe, or whoever else leases
-- ARGV[4] limit  leases at a time; 0 gives the lease back
-- ARGV[5] lease  microseconds
-- Reply {"leased"}, {"taken"} or {"back"}
-- Never waits for a probe that is lost: its lease ends.
-- luacheck: ignore 211
local STATE, NOW, DOWNSTREAM, TOKEN, LIMIT, LEASE = KEYS[1], ARGV[1], ARGV[2], ARGV[3], tonumber(ARGV[4]), tonumber(ARGV[5])
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
-- relief: a first write that a full Redis allows, which frees the rest of the script from the check. Only admit,
-- which adds data, begins with one that a full Redis refuses, and finish with XACK, which it allows.
redis.call('DEL', P .. 'relief')
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
local now = now_us(NOW)

local key = P .. 'probing:' .. DOWNSTREAM
redis.call('ZREM', key, TOKEN)
if LIMIT == 0 then return { 'back' } end
redis.call('ZREMRANGEBYSCORE', key, '-inf', format('%d', now))
if redis.call('ZCARD', key) >= LIMIT then return { 'taken' } end
redis.call('ZADD', key, format('%d', now + LEASE), TOKEN)
redis.call('PEXPIRE', key, format('%d', math.ceil(LEASE / 1000) + 1000))
return { 'leased' }
