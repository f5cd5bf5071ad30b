-- count adds what a process has seen admitted and refused to the counts of this minute, of the scopes with the most.
-- KEYS[1] state  hash; the partition's other keys share its hash tag and are named after it
-- ARGV[1] now  microseconds, "" for Redis TIME
-- ARGV[2] top  largest number of scopes that are counted, those to be counted always apart
-- ARGV[3] keep  seconds that a minute is kept
-- ARGV[4] ...  of each scope: its name, "1" to count it always, jobs admitted, jobs refused, tokens asked for
-- Reply {"counted"}
-- Never keeps more than top scopes in a minute and those counted always: the one with the fewest makes room.
-- luacheck: ignore 211
local STATE, NOW, TOP, KEEP = KEYS[1], ARGV[1], tonumber(ARGV[2]), ARGV[3]
local SCOPES_AT, SCOPE_SIZE = 4, 5
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
local COUNTS, RANKS = P .. 'counts:' .. format('%d', math.floor(now_us(NOW) / 60000000)), P .. 'ranks'

-- As a minute begins all ranks are halved, so that scopes of long ago do not stay.
if redis.call('EXISTS', COUNTS) == 0 then
  redis.call('ZUNIONSTORE', RANKS, 1, RANKS, 'WEIGHTS', '0.5')
  redis.call('ZREMRANGEBYSCORE', RANKS, '-inf', '(1')
end
local names, places = {}, {}
for at = SCOPES_AT, #ARGV, SCOPE_SIZE do
  names[#names + 1] = ARGV[at]
  places[ARGV[at]] = #names
end
local ranked, stored = redis.call('ZMSCORE', RANKS, unpack(names)), redis.call('HMGET', COUNTS, unpack(names))
local size = redis.call('ZCARD', RANKS)

-- rank counts n for a scope (the algorithm Space-Saving: a newcomer takes the place, and the rank, of the last), and
-- returns whether it is new.
local function rank(i, n)
  if ranked[i] then
    redis.call('ZINCRBY', RANKS, n, names[i])
    return false
  end
  local below = 0
  if size >= TOP then
    local last = redis.call('ZPOPMIN', RANKS)
    below = tonumber(last[2])
    redis.call('HDEL', COUNTS, last[1])
    local place = places[last[1]]
    if place then ranked[place], stored[place] = false, false end
  else
    size = size + 1
  end
  redis.call('ZADD', RANKS, below + n, names[i])
  ranked[i] = true
  return true
end

for i, name in ipairs(names) do
  local at = SCOPES_AT + SCOPE_SIZE * (i - 1)
  local allowed, refused, tokens = tonumber(ARGV[at + 2]), tonumber(ARGV[at + 3]), tonumber(ARGV[at + 4])
  local fresh = ARGV[at + 1] ~= '1' and rank(i, allowed + refused)
  local a, r, t, partial = match(stored[i] or '', '^(%d+):(%d+):(%d+):(%d)$')
  partial = partial or fresh and 1 or 0
  redis.call('HSET', COUNTS, name, format('%d:%d:%d:%d', allowed + (a or 0), refused + (r or 0), tokens + (t or 0), partial))
end
redis.call('EXPIRE', COUNTS, KEEP)
redis.call('EXPIRE', RANKS, KEEP)
return { 'counted' }
