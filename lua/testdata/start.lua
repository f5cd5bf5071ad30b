-- start notes that a worker's handler begins a suspect, a job whose delivery was lost before.
-- KEYS[1] state  hash; the partition's other keys share its hash tag and are named after it
-- ARGV[1] pool  id
-- ARGV[2] worker  name
-- ARGV[3] token  of the lease
-- ARGV[4] key  of the job
-- Reply {"started"}, {"lost"}, or {"beside"}: the worker runs a suspect that this one is not to run beside
-- Never notes what is no longer the worker's: nobody would take the note away. Never lets suspects run together that are not of one
-- group, see reclaim.lua.
-- luacheck: ignore 211
local STATE, POOL, WORKER, TOKEN, KEY = KEYS[1], ARGV[1], ARGV[2], ARGV[3], ARGV[4]
local P = string.sub(STATE, 1, -6)
local format, match = string.format, string.match
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
end
-- group: the consumer group of every ready stream.
local GROUP = 'g'
-- relief: a first write that a full Redis allows, which frees the rest of the script from the check. Only admit,
-- which adds data, begins with one that a full Redis refuses, and finish with XACK, which it allows.
redis.call('DEL', P .. 'relief')
local ready = P .. 'ready:' .. POOL
if redis.call('EXISTS', ready) == 0 then return { 'lost' } end
if #redis.call('XPENDING', ready, GROUP, TOKEN, TOKEN, 1, WORKER) == 0 then return { 'lost' } end
if redis.call('HGET', P .. 'started', KEY) == WORKER then return { 'started' } end
local group = redis.call('HGET', P .. 'suspects', KEY) or ''
local n, running = match(redis.call('HGET', P .. 'begun', WORKER) or '0|', '^(%d+)|(.*)$')
if n ~= '0' and (group == '' or group ~= running) then return { 'beside' } end
redis.call('HSET', P .. 'started', KEY, WORKER)
redis.call('HSET', P .. 'begun', WORKER, format('%d|%s', n + 1, group))
return { 'started' }
