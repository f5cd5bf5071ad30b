-- recount brings jobs that entered before their tenant and queue had a bound into its depth, a page a call.
-- KEYS[1] state  hash; the partition's other keys share its hash tag and are named after it
-- ARGV[1] now  microseconds, "" for Redis TIME
-- ARGV[2] cursor  "0" at first, then what the last call replied
-- ARGV[3] page  jobs to look at, about
-- ARGV[4] edit  of the policy whose bounds are counted
-- Reply {cursor}, "0" at the end
-- Never counts a job twice: its record says that it counts.
-- luacheck: ignore 211
local STATE, NOW, CURSOR, PAGE, EDIT = KEYS[1], ARGV[1], ARGV[2], ARGV[3], ARGV[4]
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
local JOBS = P .. 'jobs'
do
-- jobs: the jobs hash, and the sets of ended ids: two generations, `en` and `eo` their sizes; the older goes when it
-- is a window old.

local function ended_key(generation)
  return P .. 'ended:' .. format('%d', generation)
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
local COST_AT, QUEUE_AT = 31, 37
local LARGE, TIMED, COUNTED, UNIQUE_END, HISTORY, UNIQUE_START = 2, 4, 8, 16, 32, 64
local record_has, record_flagged, record_queue, record_lane
do
-- header: a job's value in the jobs hash. Bytes, counted from 1:
--   1 version · 2 flags · 3 class, from 0 · 4 attempts · 5 max attempts · 6 suspicion: 0, or 1 + the deliveries lost that
--   count · 7-14 seq · 15-22 score, 23-30 arrival, in microseconds · 31-34 cost in tokens · 35 length of queue · 36 length
--   of downstream · 37 queue, downstream, and the body, opaque here
-- Flags: 1 has a deadline · 2 payload under a key of its own · 4 the deadline is its queue's longest wait · 8 counts in
-- the depth of its tenant and queue · 32 has a history · 16 and 64 a unique key, released: 16 at the end, 64 at the start, both when
-- its time is over · 128 on the way into admit, and while spilled: starts later.
-- Integers are big-endian. A lane's member is seq (8 bytes), cost (4), id.

local function has_flag(flags, bit)
  return floor(flags / bit) % 2 == 1
end

function record_has(rec, bit)
  return has_flag(byte(rec, 2), bit)
end

function record_flagged(rec, bit)
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
do
-- score: scores of a ZSET. The embedded store writes 8e+8, which its tonumber does not read.
local function score_of(s)
  return tonumber(s) or s + 0
end
end
local bound_open, total_bound, depth_add, job_size, old_add, depth_write
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
local depth_freed = {} -- name → 'left', or 'goes on' where moves ran out -- luacheck: ignore 241 (only a fill uses it)

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
function total_bound(tenant)
  return bounds[tenant]
end

local function depth_read(text)
  local count, bytes = match(text or '', '^(%d+)|(%d+)$')
  return { jobs = tonumber(count or 0), bytes = tonumber(bytes or 0) }
end

-- depth_open returns the depth of a name, and that of its tenant over all.
local function depth_open(name)
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
local function depth_leave(key, rec)
  if record_has(rec, COUNTED) then depth_add(depth_name(key, rec), -1, -job_size(key, rec)) end
end

-- old_add and old_remove follow a counted job into and out of its lane.
function old_add(key, rec)
  if not record_has(rec, COUNTED) then return end
  local score = (127 - byte(rec, 3)) * CLASS_STEP + number_at(rec, 7)
  redis.call('ZADD', P .. 'old:' .. depth_name(key, rec), format('%d', score), key)
end

local function old_remove(key, rec)
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
-- relief: a first write that a full Redis allows, which frees the rest of the script from the check. Only admit,
-- which adds data, begins with one that a full Redis refuses, and finish with XACK, which it allows.
redis.call('DEL', P .. 'relief')
local now = now_us(NOW)

call_begin(now, { 'pr' })
local found = redis.call('HSCAN', JOBS, CURSOR, 'COUNT', PAGE)
for i = 1, #found[2], 2 do
  local key, rec = found[2][i], found[2][i + 1]
  local tenant, id = key_split(key)
  local r = record_read(rec)
  if (bound_open(tenant, r.queue) or total_bound(tenant)) and not record_has(rec, COUNTED) and not redis.call('ZSCORE', P .. 'dead', key)
    and not redis.call('ZSCORE', P .. 'spill:' .. tenant .. ':' .. r.queue, key) then
    rec = record_flagged(rec, COUNTED)
    redis.call('HSET', JOBS, key, rec)
    depth_add(tenant .. ':' .. r.queue, 1, job_size(key, rec))
    local lane = P .. 'lane:' .. r.class .. ':' .. r.queue .. ':' .. tenant .. ':' .. r.lane
    if redis.call('ZSCORE', lane, r.order .. id) then old_add(key, rec) end
  end
end
if found[1] == '0' and state_get('pr') == EDIT then state_set('pr', false) end
depth_write()
state_write()
return { found[1] }
