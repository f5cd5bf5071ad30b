-- admit decides on a batch of jobs, all or nothing for each, and dispatches what has room.
-- KEYS[1] state  hash; the partition's other keys share its hash tag and are named after it
-- ARGV[1] now  microseconds, "" for Redis TIME
-- ARGV[2] version  of the policy that the caller's limits come from
-- ARGV[3] ended_cap  largest number of ended ids kept
-- ARGV[4] bucket_cap  largest number of buckets of a tenant
-- ARGV[5] global_rate  tokens a second, "" for no bucket
-- ARGV[6] global_burst  micro-tokens
-- ARGV[7] paths  number of P
-- ARGV[8] ...  what the fragment path says; then of each job: path from 1, negative to redrive a dead letter, id, record
--   (with the letter's seq), of a redriven one who does it and why, as fragments/audit.lua reads it, and where the record's flags
--   say so the name under which its payload was uploaded (a redriven one has it already), the time it starts (microseconds from now if negative), and its unique
--   key with microseconds
-- Reply {"stale", version} or {"decided" | "more", a line a job}, lines being "admitted POSITION WAIT_US",
--   "straight", "later WAIT_US", or "spilled POSITION", each with "LEFT BURST", in whole tokens, of the bucket on the way that holds least
--   after it, where there is one; or "duplicate", "limited LEVEL LEFT WAIT_US BURST", "costly LEVEL BURST", "dedup",
--   "buckets LEVEL", "queues", "queues MADE" by its tenant, "deadline", "overflow JOBS BYTES" of its
--   tenant's depth in the queue, "full JOBS BYTES" over all its queues, "share JOBS BYTES" of what is left of the memory,
--   "uniques KEYS" or "lanes LANES" that it has,
--   "huge BYTES" where the job alone is above the bound, "memory", "paused WAIT_US REASON", "unique WAIT_US KEY" of the job
--   that holds it, "parked WAIT_US JOBS DOWNSTREAM" whose breaker is not closed, "gone" (no dead letter); "dropped N "
--   stands before an admission that cost N older jobs; LEFT and BURST of a refusal in micro-tokens, WAIT_US -1 for unknown
-- Never charges a job that it refuses, reads a client's clock, or writes before the first admitted job; where it admits none it
--   may forget queues, and uploaded payloads. A payload that is not there, as Redis was full, refuses its job with "memory".
local STATE, NOW, VERSION = KEYS[1], ARGV[1], ARGV[2]
local ENDED_CAP, BUCKET_CAP = tonumber(ARGV[3]), tonumber(ARGV[4])
local GLOBAL_RATE, GLOBAL_BURST = tonumber(ARGV[5]), tonumber(ARGV[6])
local PATHS, PATHS_AT = tonumber(ARGV[7]), 8
local BUCKETS, GLOBAL_BUCKET = 'b:', 'gb'
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
local rate_texts = {} -- texts of rates that are known, by rate
local bucket_settle, bucket_wait, bucket_fill, bucket_text
do
-- bucket: token buckets, the arithmetic of package buckets, operation for operation. Levels are micro-tokens,
-- rates micro-tokens a microsecond. A stored bucket is "level:stamp:fill:rate"; an absent one is full.

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
local paths, tenants = {}, {}
local paths_read, buckets_read, decide, charge, buckets_write
do
-- path: the buckets on the way of a job, global, tenant, queue and priority, for scripts that charge them all or none.
-- A script binds PATHS, PATHS_AT, BUCKET_CAP, GLOBAL_RATE, GLOBAL_BURST, what the keys of tenants' buckets begin with
-- (BUCKETS), and the field of the state that has the global one (GLOBAL_BUCKET). At PATHS_AT stand the number of distinct
-- limits, of each rate and burst of tenant, queue and priority, where a rate of "" is no bucket; then of each path tenant,
-- queue, class from 0, its name, and its limits from 1.
local PATH_SIZE, LIMITS_SIZE = 5, 6
local filled_to -- the buckets' own time, which never goes back

-- path_bucket notes a bucket, false for no rate. Those of one tenant are read together.
local function path_bucket(t, field, rate, burst)
  if not rate then return false end
  local list = t.list
  for i = 1, #list do
    if list[i].field == field then return list[i] end
  end
  local b = { field = field, owner = t, rate = rate, burst = burst, level = 0, stamp = 0, absent = false, dirty = false }
  list[#list + 1], t.fields[#list + 2] = b, field
  return b
end

-- paths_read notes the paths and returns where what follows them begins.
function paths_read()
  local limits, at = {}, PATHS_AT + 1
  for i = 1, tonumber(ARGV[PATHS_AT]) do
    local l = {}
    for k = 0, LIMITS_SIZE - 1 do l[k + 1] = tonumber(ARGV[at + k]) or false end
    for k = 1, LIMITS_SIZE, 2 do
      if l[k] then rate_texts[l[k]] = ARGV[at + k - 1] end
    end
    limits[i], at = l, at + LIMITS_SIZE
  end
  for i = 1, PATHS do
    local tenant, queue, l = ARGV[at], ARGV[at + 1], limits[tonumber(ARGV[at + 4])]
    local t = tenants[tenant]
    if not t then
      t = { key = P .. BUCKETS .. tenant, fields = { '!', false, false, false }, list = {}, expires = 0, count = false }
      tenants[tenant] = t
    end
    paths[i] = { path_bucket(t, '', l[1], l[2]), path_bucket(t, queue, l[3], l[4]),
      l[5] and path_bucket(t, queue .. ':' .. ARGV[at + 3], l[5], l[6]),
      [0] = false, tenant = tenant, queue = queue, class = ARGV[at + 2] + 1 }
    at = at + PATH_SIZE
  end
  return at
end

-- buckets_read needs `pat`, `gm`, GLOBAL_BUCKET and the clocks loaded.
function buckets_read()
  filled_to = state_num('bt')
  local changed_at = state_num('pat')
  for _, t in pairs(tenants) do
    if t.list[1] then
      local values = redis.call('HMGET', t.key, unpack(t.fields, 1, #t.list + 1))
      t.expires = tonumber(values[1] or 0)
      for i, b in ipairs(t.list) do
        local stored = values[i + 1]
        b.absent = not stored
        bucket_settle(b, stored, changed_at, filled_to)
      end
    end
  end
  if GLOBAL_RATE then
    local rate = GLOBAL_RATE * (state_get('gm') or 1) -- fragment share has the multiple
    local b = bucket_settle({ rate = rate, burst = GLOBAL_BURST }, state_get(GLOBAL_BUCKET), changed_at, filled_to)
    for i = 1, PATHS do paths[i][0] = b end
  end
end

-- room_for reports whether the tenant may have one more bucket; full ones make room.
local function room_for(b)
  local t = b.owner
  if not t then return true end
  t.count = t.count or redis.call('HLEN', t.key)
  return t.count < BUCKET_CAP
end

-- refusal_of returns the refusal of a path that does not hold the cost, nil where it does.
local function refusal_of(path, cost)
  local worst, wait_most, burst
  for level = 0, 3 do
    local b = path[level]
    if b and b.burst < cost then return format('costly %d %d', level, b.burst) end
  end
  for level = 0, 3 do
    local b = path[level]
    if b and b.level < cost then
      local wait = bucket_wait(b, cost, filled_to)
      if not worst or wait > wait_most then worst, wait_most, burst = level, wait, b.burst end
    elseif b and b.absent and not b.dirty and not room_for(b) then
      return format('buckets %d', level)
    end
  end
  if worst then return format('limited %d %d %d %d', worst, path[worst].level, wait_most, burst) end
end

-- decide returns nil when every bucket on the path holds the cost, else the refusal. Costs are micro-tokens.
function decide(path, cost)
  for level = 0, 3 do
    local b = path[level]
    if b and (b.level < cost or b.absent and not b.dirty) then return refusal_of(path, cost) end
  end
end

function charge(path, cost)
  for level = 0, 3 do
    local b = path[level]
    if b then
      b.level = b.level - cost
      if b.absent and not b.dirty and b.owner then b.owner.count = (b.owner.count or 0) + 1 end
      b.dirty = true
    end
  end
end

-- buckets_sweep removes what is full again, at most 16 of a tenant with many. A bucket from before the latest policy is
-- not known to be: its full time was counted at a rate that may have been faster.
local function buckets_sweep(t)
  local changed_at = state_num('pat')
  local values, out = redis.call('HGETALL', t.key), {}
  for i = 1, #values, 2 do
    if values[i] ~= '!' and #out < 16 then
      local stamp, fill_us = match(values[i + 1], '^%-?%d+:(%d+):(%d+):')
      if stamp + fill_us <= filled_to and tonumber(stamp) >= changed_at then out[#out + 1] = values[i] end
    end
  end
  if #out > 0 then redis.call('HDEL', t.key, unpack(out)) end
end

-- buckets_write stores what was charged, the global bucket in the state. A tenant's buckets go when the last of them is full.
local TTL_SLACK = 2000000
function buckets_write(now)
  for _, t in pairs(tenants) do
    local args, n, full_at = {}, 0, 0
    for _, b in ipairs(t.list) do
      if b.dirty then
        local fill = bucket_fill(b)
        args[n + 1], args[n + 2] = b.field, bucket_text(b, fill)
        n = n + 2
        if b.stamp + fill > full_at then full_at = b.stamp + fill end
      end
    end
    if n > 0 then
      local renew = full_at > t.expires
      if renew then args[n + 1], args[n + 2] = '!', format('%d', full_at + TTL_SLACK) end
      redis.call('HSET', t.key, unpack(args))
      if renew then
        local at = format('%d', math.ceil((full_at - filled_to + now + TTL_SLACK) / 1000))
        if t.expires == 0 then
          redis.call('PEXPIREAT', t.key, at)
        else
          redis.call('PEXPIREAT', t.key, at, 'GT') -- a new policy may have put it off further
        end
      end
      if t.count and t.count >= 128 then buckets_sweep(t) end
    end
  end
  local b = GLOBAL_RATE and paths[1][0]
  if b and b.dirty then state_set(GLOBAL_BUCKET, bucket_text(b, bucket_fill(b))) end
end
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
-- jobs: the jobs hash, and the sets of ended ids: two generations, `en` and `eo` their sizes; the older goes when it
-- is a window old.
local JOBS = P .. 'jobs'

local function ended_key(generation)
  return P .. 'ended:' .. format('%d', generation)
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
-- nobody: nobody_runs reports whether nobody in the queue is runnable: no job waits, or those that do stand behind gates.
local function nobody_runs(q)
  local waited_for = {}
  for c = 1, q.n do
    if q.waiting[c] > 0 then waited_for[#waited_for + 1] = P .. 'act:' .. (c - 1) .. ':' .. q.name end
  end
  return not waited_for[1] or gates_any() and redis.call('EXISTS', unpack(waited_for)) == 0
end
local ask, caps_ask, any_on_way
do
-- onway: asks for gates on a job's way, without the functions of gate.lua, which cost more to make than most calls take.
-- It names them as gate.lua does, with those of all that have none of their own. It needs `ng` loaded.
local on_way, asked = {}, {}

function ask(name)
  if not asked[name] then asked[name], on_way[#on_way + 1] = true, name end
end

-- caps_ask asks for the caps that a job may count against, of the kinds of which there are any.
function caps_ask(queue, tenant, downstream)
  local kinds = match(state_get('ng'), '^[^|]*')
  if string.find(kinds, 'q', 1, true) then ask('q:' .. queue) end
  if string.find(kinds, 't', 1, true) then
    ask('t:*')
    ask('t:' .. tenant)
  end
  if string.find(kinds, 'u', 1, true) then
    ask('u:*:' .. queue)
    ask('u:' .. tenant .. ':' .. queue)
  end
  if downstream ~= '' and string.find(kinds, 'd', 1, true) then
    ask('d:*')
    ask('d:' .. downstream)
  end
end

-- any_on_way reports whether there is one of those that were asked for.
function any_on_way()
  local found = on_way[1] and redis.call('HMGET', P .. 'gates', unpack(on_way)) or {}
  for i = 1, #on_way do
    if found[i] then return true end
  end
  return false
end
end
-- queue_known reports whether the policy names a queue or a worker serves it.
local function queue_known(name)
  return state_get('cfg:' .. name) or state_get('pools:' .. name)
end
local time_us = now_us(NOW)

-- record_stamp returns what a producer sent with flags, seq, score and arrival filled in, 8 bytes each of the latter.
local function record_stamp(rec, flags, seq, score, arrival)
  return sub(rec, 1, 1) .. char(flags) .. sub(rec, 3, 6) .. seq .. score .. arrival .. sub(rec, COST_AT)
end

-- makes_queue reports whether a job would make a queue.
local function makes_queue(name)
  return queue_open(name).fresh and not queue_known(name)
end

-- left_of returns what the bucket on a way has that holds least, and its burst; "" where there is none.
local function left_of(path)
  local least
  for level = 0, 3 do
    local b = path[level]
    if b and (not least or b.level < least.level) then least = b end
  end
  return least and format(' %d %d', floor(least.level / 1000000), least.burst / 1000000) or ''
end

local function admitted_line(job, position)
  return format('admitted %d %d', position, wait_guess(job.path, position)) .. job.left
end

-- memory_left returns how many bytes Redis may take until it has used MEMORY_FULL of its maxmemory, 0 where it has; nil while it has
-- used less than MEMORY_SHARED, up to which nobody counts who has what. It asks at most every MEMORY_EVERY microseconds, because
-- asking takes longer than admitting, and only for jobs that nothing else refuses: a call that admits none does not note the
-- answer, which is `mf`: 0 for nil, 1 for 0, else the bytes.
local MEMORY_EVERY, MEMORY_SHARED, MEMORY_FULL = 100000, 0.6, 0.9
local left
local function memory_left()
  if not left then
    if math.abs(time_us - state_num('ma')) >= MEMORY_EVERY then
      local info = redis.pcall('INFO', 'memory')
      info = type(info) == 'string' and info or ''
      local limit = tonumber(match(info, 'maxmemory:(%d+)') or 0)
      local used = tonumber(match(info, 'used_memory:(%d+)') or 0) - tonumber(match(info, 'not_counted_for_evict:(%d+)') or 0)
      state_set('ma', time_us)
      state_set('mf', used > limit * MEMORY_SHARED and limit > 0 and math.max(1, floor(limit * MEMORY_FULL - used)) or 0)
    end
    left = state_num('mf')
  end
  if left > 0 then return left > 1 and left or 0 end
end

local jobs, job_keys, uniques = {}, {}, {}
local seen, writes, admitted, answers = {}, {}, {}, {}

-- rare returns what only some calls need: making these functions, those of the fill above all, costs more than a lone
-- admission.
local function rare_make()
  local rare = {}
local by_read, audit_act
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
local function hold_reason(by, now)
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
local GATES, MARKS, SHELVES, DISPATCH = P .. 'gates', P .. 'marks', P .. 'shelves', 1000000
local NO_GATES = {}
local gates, gates_dirty = {}, {}
local kinds, ill -- ill is the set of downstreams with a b:, false where it is not known
local gate
local gate_kinds, gate_is_rate, gate_parse, gates_there, gate_units, gate_closed
local tenant_gates, lane_gates, gate_pass, gates_write, gate_park, gate_tidy
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
local depth_freed = {} -- name → 'left', or 'goes on' where moves ran out -- luacheck: ignore 241 (only a fill uses it)
local bound_open, total_bound, depth_open, depth_add, job_size, depth_leave
local old_add, old_remove, depth_write
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
function total_bound(tenant)
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
local DEAD, WHY, UKEYS = P .. 'dead', P .. 'why', P .. 'ukeys'
local unique_release, leave, job_gone, letter_remove, dead_letter
do
-- letter: dead letters stay in the jobs hash, stand in `dead`, in their queue's `dead:QUEUE` and in `letters:TENANT:QUEUE` by their
-- time, and `why` keeps their reason. ZSETs count them: `deadof` and `deadof:QUEUE` of each tenant, `deadin:TENANT` of each queue.
-- Letters of a release that did not count them are in none of these four.
-- `unique:TENANT:KEY` names the job that holds a unique key, `ukeys` the key that a job is to release.
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
function letter_remove(key, rec, named)
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
local WIDE, LANE_CAP = P .. 'wide', 4096
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
local holds, hold_changes = {}, {}
local hold_add, hold_count, holds_write
do
-- holds: HASH POOL:DOWNSTREAM → how many entries of the pool's ready stream call the downstream.
local HOLDS = P .. 'holds'

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
local must_shelve, shelf_passed, shelves_wake, pools_idle
do
-- shelf: a downstream that hangs must not take every slot. While a pool holds a SHARE of its slots for one downstream and
-- has other tenants that are runnable, lanes of that downstream that come to the head go on the shelf: they wait at
-- h:DOWNSTREAM, as behind a gate. One comes back for each entry that leaves, as far as the share goes, and for each
-- dispatch beyond it; and as many as there is room for when the pool has no other work.
local SHARE = 0.5

local function share_left(pool, downstream)
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
local SPILLS, DELAYED = P .. 'spills', 128
local spill_return
do
-- spill: jobs above the bound of their tenant in a queue wait in `spill:TENANT:QUEUE`, a ZSET by arrival, and come back in
-- that order once its depth is below the low-water mark; `spills` names those that hold some. A job with a deadline has
-- a timer x there. One that starts later says so in its record while it is spilled (DELAYED), and `starts` has the time.

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
-- everykind: all kinds of gates, for whoever looks for what may outlast the last gate of its kind, as waiters do, or
-- precede the first.
local EVERY_KIND = { d = 1, b = 1, s = 1, t = 1, u = 1, r = 1, q = 1 }
local lane_shrunk
do
-- shrink: jobs leave a lane other than by dispatch.
local function gate_forget(name, class, queue, member)
  local line = class .. ':' .. queue
  if redis.call('ZREM', P .. 'gw:' .. name .. '|' .. line, member) == 1 then gate_tidy(name, line) end
end

-- tenant_exit takes a runnable tenant out of the runnable set and keeps its tag if above V.
local function tenant_exit(cl, tenant, x)
  local member = x.entry .. tenant
  local tag = score_of(redis.call('ZSCORE', cl.act, member))
  redis.call('ZREM', cl.act, member)
  runs_add(cl, x.lane, -1)
  if redis.call('EXISTS', cl.act) == 0 then
    redis.call('UNLINK', cl.idle)
  elseif tag > cl.q.V[cl.c] then
    redis.call('ZADD', cl.idle, format('%.17g', tag), tenant)
  end
end

local function tenant_drained(cl, tenant, x)
  if x.mode == 'a' then
    tenant_exit(cl, tenant, x)
  elseif x.mode == 't' then
    for _, name in ipairs(tenant_gates(tenant, cl.q.name, EVERY_KIND)) do gate_forget(name, cl.c - 1, cl.q.name, tenant) end
  end
  redis.call('HDEL', cl.ten, tenant)
  cl.tenants[tenant] = false
end

-- lanes_parked notes that a tenant has no open lane left.
local function lanes_parked(cl, tenant, x)
  if x.mode == 'a' then
    tenant_exit(cl, tenant, x)
    x.mode = 'b'
  end
  x.beside, x.lane = '', '*'
  tenant_write(cl, tenant, x)
end

-- lane_shrunk settles a lane from which jobs were taken other than by dispatch.
function lane_shrunk(cl, tenant, lane)
  local head = redis.call('ZRANGE', lane_key(cl, tenant, lane), 0, 0, 'WITHSCORES')
  local x = tenant_open(cl, tenant)
  cl.q.touched = true
  if not head[1] and byte(lane) == 100 then redis.call('ZREM', DUE, deadline_timer(cl, tenant, lane)) end
  if x.lane == lane then
    if head[1] then return end
    if x.mode == 'a' then lane_vanished(lane) end
    if x.beside == '' then
      tenant_drained(cl, tenant, x)
    else
      lanes_parked(cl, tenant, x)
    end
    return
  end
  local lanes = lanes_key(cl, tenant)
  local blocked = score_of(redis.call('ZSCORE', lanes, lane)) >= BLOCKED
  if head[1] then
    redis.call('ZADD', lanes, format('%d', blocked and score_of(head[2]) + BLOCKED or head[2]), lane)
    return
  end
  redis.call('ZREM', lanes, lane)
  lane_counted(cl, tenant)
  if blocked then
    gate_forget('h:' .. sub(lane, 2), cl.c - 1, cl.q.name, tenant .. ':' .. lane)
    for _, name in ipairs(lane_gates(sub(lane, 2), EVERY_KIND)) do gate_forget(name, cl.c - 1, cl.q.name, tenant .. ':' .. lane) end
  elseif x.mode == 'a' then
    lane_vanished(lane)
  end
  if x.lane == '*' then
    if not tenant_settle(cl, tenant, x) then tenant_drained(cl, tenant, x) end
  elseif redis.call('EXISTS', lanes) == 0 then
    x.beside = ''
    tenant_write(cl, tenant, x)
  end
end
end
-- suspended: names under which nothing is admitted, HASH name → until|reason, microseconds, 0 for ever. Names are those of
-- the gates of a queue, a tenant, a tenant in a queue. `np` counts them.
local SUSPENDED = P .. 'suspended'
local made_by, making, crowded = {}, 0, false -- what this call makes
local made_full, made_plan, made_note, queues_forget
do
-- made: queues that a job has made: no worker serves them, and the policy does not name them. HASH `made`: QUEUE → until|tenant,
-- who made it, and when the last job starts that was put off there while nobody served it, in microseconds; "TENANT:" → how
-- many it made. From half of a bound on, those without jobs, letters and holds are forgotten.
local MADE, QUEUE_CAP, MADE_CAP, LOOKS = P .. 'made', 4096, 256, 64

local function made_count(tenant)
  made_by[tenant] = made_by[tenant] or tonumber(redis.call('HGET', MADE, tenant .. ':') or 0)
  return made_by[tenant]
end

-- made_full returns the refusal of a job that would make a queue.
function made_full(path)
  if queue_open(path.queue).maker then return nil end
  local all, own = state_num('nq') + making, made_count(path.tenant)
  crowded = crowded or all >= QUEUE_CAP / 2 or own >= MADE_CAP / 2
  if all >= QUEUE_CAP then return 'queues' end
  if own >= MADE_CAP then return format('queues %d', own) end
end

-- made_plan says that the tenant makes the queue.
function made_plan(path)
  local q = queue_open(path.queue)
  if q.maker then return end
  q.maker, made_by[path.tenant], making = path.tenant, made_count(path.tenant) + 1, making + 1
end

-- made_note notes the queue of a job that was admitted, where nobody knows it. One whose jobs all wait for a time is there, too.
function made_note(job)
  local q, start = queue_open(job.path.queue), job.start or 0
  if start > 0 then q.touched = true end
  local until_us, maker = q.put_off, q.maker
  if not until_us then
    until_us, maker = match(redis.call('HGET', MADE, q.name) or '', '^(%d+)|(.*)$')
    if not maker then redis.call('HINCRBY', MADE, (q.maker or job.path.tenant) .. ':', 1) end
    until_us, q.maker = tonumber(until_us or -1), maker or q.maker or job.path.tenant
  end
  q.put_off = math.max(until_us, start)
  if q.put_off > until_us then redis.call('HSET', MADE, q.name, format('%d|%s', q.put_off, q.maker)) end
end

local function made_forget(name)
  local tenant = match(redis.call('HGET', MADE, name) or '', '|(.*)$')
  if not tenant then return end
  redis.call('HDEL', MADE, name)
  if redis.call('HINCRBY', MADE, tenant .. ':', -1) <= 0 then redis.call('HDEL', MADE, tenant .. ':') end
end

-- queue_idle reports whether nothing waits in a queue, by its field in the state.
local function queue_idle(text)
  for waiting in string.gmatch(match(text, '^[^|]*|[^|]*|[^|]*|[^|]*(.*)$'), '|[^|]+|(%d+)') do
    if waiting ~= '0' then return false end
  end
  return true
end

-- queues_forget looks at some LOOKS queues that this call is not about, and forgets those that nobody knows and that hold
-- nothing. Each call goes on where the last one ended.
function queues_forget(now)
  redis.call('DEL', P .. 'relief')
  local found = redis.call('HSCAN', STATE, state_get('qs') or '0', 'MATCH', 'q:*', 'COUNT', LOOKS)
  state_set('qs', found[1] ~= '0' and found[1])
  for i = 1, #found[2], 2 do
    local name = sub(found[2][i], 3)
    if not queues[name] and queue_idle(found[2][i + 1]) then
      local until_us = tonumber(match(redis.call('HGET', MADE, name) or '0|', '^(%d+)'))
      if queue_known(name) then
        made_forget(name)
      elseif until_us < now and redis.call('EXISTS', P .. 'dead:' .. name) == 0 and not gate('q:' .. name)
        and redis.call('HEXISTS', SUSPENDED, 'q:' .. name) == 0 then
        made_forget(name)
        state_set('q:' .. name, false)
        state_add('nq', -1)
      end
    end
  end
end
end
-- ends: names that are kept until a time, a ZSET of them by it in microseconds, which goes with the last.
-- ends_add keeps a name for longer, and forgets up to 16 whose time has passed.
local function ends_add(zset, name, until_us, now)
  local passed = redis.call('ZRANGEBYSCORE', zset, '-inf', format('%d', now), 'LIMIT', 0, 16)
  if #passed > 0 then redis.call('ZREM', zset, unpack(passed)) end
  redis.call('ZADD', zset, 'GT', format('%d', until_us), name)
  local last = redis.call('ZRANGE', zset, -1, -1, 'WITHSCORES')
  redis.call('PEXPIREAT', zset, format('%d', math.ceil(score_of(last[2]) / 1000)))
end

local function ends_count(zset, now)
  return redis.call('ZCOUNT', zset, format('%d', now), '+inf')
end
local unique_stays, uniques_full, uniques_add, uniques_bytes
do
-- uniques: unique keys that stay when their job has ended, ZSET `uniques:TENANT` of them by the end of their time, in
-- microseconds. A tenant has at most UNIQUE_CAP; each counts as UNIQUE_BYTES of what it has over all its queues.
local UNIQUE_CAP, UNIQUE_BYTES = 1000000, 300
local uniques_new = {}

-- unique_stays reports whether a job's unique key goes with its time alone.
function unique_stays(job)
  return has_flag(job.flags, UNIQUE_END) and has_flag(job.flags, UNIQUE_START)
end

-- uniques_full returns the refusal of a job whose tenant has as many as it may.
function uniques_full(job, now)
  if not unique_stays(job) then return nil end
  local tenant = job.path.tenant
  local n = ends_count(P .. 'uniques:' .. tenant, now) + (uniques_new[tenant] or 0)
  if n >= UNIQUE_CAP then return format('uniques %d', n) end
  uniques_new[tenant] = (uniques_new[tenant] or 0) + 1
end

function uniques_add(job, now)
  local tenant = job.path.tenant
  ends_add(P .. 'uniques:' .. tenant, sub(job.unique, #tenant + 2), now + job.unique_for, now)
end

function uniques_bytes(tenant)
  return UNIQUE_BYTES * redis.call('ZCARD', P .. 'uniques:' .. tenant)
end
end
local dropped, drops = {}, 0
local victims, overflow
do
-- overflow: what becomes of a job for which its tenant's depth leaves no room, in its queue or over all. It refuses the job, or makes
-- it a spilled one, or names the jobs that go out for it: the oldest of the lowest class, none of a class above its own; at most
-- DROPS a call, of those that waited before it. While Redis fills up, a tenant has at most MEMORY_SHARE times what it leaves: the
-- more there are that take all they can, the less has each, and somebody new always finds room.
local DROPS, MEMORY_SHARE = 64, 4

function victims(job, b, d, size)
  local found = redis.call('ZRANGE', P .. 'old:' .. job.depth, 0, DROPS - 1, 'WITHSCORES')
  local chosen, jobs_out, bytes_out = {}, 0, 0
  for i = 1, #found, 2 do
    local key = found[i]
    if not dropped[key] then
      if 127 - floor(score_of(found[i + 1]) / 35184372088832) < job.path.class - 1 or drops + #chosen == DROPS then break end
      local rec = redis.call('HGET', JOBS, key)
      if rec then
        chosen[#chosen + 1] = { key = key, rec = rec }
        jobs_out, bytes_out = jobs_out + 1, bytes_out + job_size(key, rec)
      end
      if d.plan_jobs + 1 - jobs_out <= b.jobs and d.plan_bytes + size - bytes_out <= b.bytes then
        return chosen, jobs_out, bytes_out
      end
    end
  end
end

-- total_refused returns the refusal of a job for which its tenant's depth over all queues leaves no room.
local function total_refused(job, t, most, left, jobs, bytes)
  if t.uniques == nil then t.uniques = uniques_bytes(job.path.tenant) end
  local all = t.plan_bytes + t.uniques
  if most and (t.plan_jobs + jobs > most.jobs or all + bytes > most.bytes) then return format('full %d %d', t.plan_jobs, all) end
  if left and all + bytes > MEMORY_SHARE * (left - bytes) then return format('share %d %d', t.plan_jobs, all) end
end

function overflow(job, left)
  local path = job.path
  local b, most = bound_open(path.tenant, path.queue), total_bound(path.tenant)
  if not b and not most and not left then return nil end
  job.depth = path.tenant .. ':' .. path.queue
  local d, t = depth_open(job.depth)
  for _, of in ipairs({ d, t }) do
    if not of.plan_jobs then of.plan_jobs, of.plan_bytes = of.jobs, of.bytes end
  end
  if b and not d.spilled then d.spilled = redis.call('ZCARD', P .. 'spill:' .. job.depth) end
  local size = #job.rec + (job.payload or job.redrive and job_size(job.key, job.rec) - #job.rec or 0)
  if b and size > b.bytes or most and size > most.bytes then return format('huge %d', size) end
  local spills = b and b.policy == 's'
  local jobs_in, bytes_in, chosen = 1, size, nil
  if b and (spills and d.spilled > 0 or d.plan_jobs + 1 > b.jobs or d.plan_bytes + size > b.bytes) then
    if spills and d.spilled < b.spill then
      job.spilled, d.spilled = true, d.spilled + 1
      if job.start then job.flags = job.flags + DELAYED end
      job.size = size
      return nil
    end
    local jobs_out, bytes_out
    if b.policy == 'd' then chosen, jobs_out, bytes_out = victims(job, b, d, size) end
    if not chosen then return format('overflow %d %d', d.plan_jobs, d.plan_bytes) end
    jobs_in, bytes_in = 1 - jobs_out, size - bytes_out
  end
  if most or left then
    local refused = total_refused(job, t, most, left, jobs_in, bytes_in)
    if refused then return refused end
  end
  if chosen then
    job.victims, drops = chosen, drops + #chosen
    for _, v in ipairs(chosen) do dropped[v.key] = true end
  end
  for _, of in ipairs({ d, t }) do of.plan_jobs, of.plan_bytes = of.plan_jobs + jobs_in, of.plan_bytes + bytes_in end
  job.size = size
end
end
local lanes_full, ahead_add
do
-- widths: a tenant has at most LANE_CAP lanes in a class of a queue, and those that one call makes. `wide` (lane.lua) has those that
-- have many. Jobs that are put off make their lanes when their time comes: `ahead:TENANT` is a ZSET of the downstreams of those by the
-- time of the last, of which there are as many at most.
local ahead_new = {}

-- lanes_full returns the refusal of a job for which a tenant that has as many lanes as it may would have one more.
function lanes_full(job, now)
  local path, lane = job.path, record_lane(job.rec)
  if #lane == 1 then return nil end
  if queue_open(path.queue).wait > 0 then lane = 'd' .. sub(lane, 2) end
  local cq = (path.class - 1) .. ':' .. path.queue
  local n = state_num('wl') > 0 and tonumber(redis.call('ZSCORE', WIDE, cq .. ':' .. path.tenant) or 0) or 0
  if n >= LANE_CAP and redis.call('EXISTS', P .. 'lane:' .. cq .. ':' .. path.tenant .. ':' .. lane) == 0 then return format('lanes %d', n) end
  if not job.start then return nil end
  local zset, downstream = P .. 'ahead:' .. path.tenant, sub(lane, 2)
  local new = ahead_new[path.tenant] or {}
  if new[downstream] or redis.call('ZSCORE', zset, downstream) then return nil end
  n = ends_count(zset, now) + (new.n or 0)
  if n >= LANE_CAP then return format('lanes %d', n) end
  new.n, new[downstream] = (new.n or 0) + 1, true
  ahead_new[path.tenant] = new
end

-- ahead_add notes a job that is put off.
function ahead_add(job, now)
  local downstream = sub(record_lane(job.rec), 2)
  if downstream ~= '' then ends_add(P .. 'ahead:' .. job.path.tenant, downstream, job.start, now) end
end
end
  rare.queue_refused, rare.queue_made, rare.overflow = made_full, made_plan, overflow
  rare.lanes_full = lanes_full
  -- job_options reads what follows a record whose flags say so, and returns where the next job begins.
  function rare.options(job, at)
    if has_flag(job.flags, LARGE) and not job.redrive then
      job.uploaded = P .. 'upload:' .. ARGV[at]
      job.payload = redis.call('STRLEN', job.uploaded)
      at = at + 1
    end
    if has_flag(job.flags, DELAYED) then
      local start = tonumber(ARGV[at])
      start = start < 0 and time_us - start or start
      if start > time_us then job.start = start end
      job.flags = job.flags - DELAYED
      at = at + 1
    end
    if has_flag(job.flags, UNIQUE_END) or has_flag(job.flags, UNIQUE_START) then
      job.unique, job.unique_for = job.path.tenant .. ':' .. ARGV[at], tonumber(ARGV[at + 1])
      at = at + 2
    end
    return at
  end

  -- redrives_tell tells the audit of the dead letters that are on their way again.
  local function redrives_tell()
    local of, by = {}, nil
    for _, i in ipairs(admitted) do
      local job = jobs[i]
      if job.redrive then
        local name = 'q:' .. job.path.queue
        of[name], by = (of[name] or 0) + 1, job.by
      end
    end
    for name, n in pairs(of) do audit_act(time_us, by_read(by), name, n) end
  end

  -- suspension returns the refusal of a job whose queue or tenant admits nothing for a time.
  function rare.suspension(path)
    local found = redis.call('HMGET', SUSPENDED, 'q:' .. path.queue, 't:' .. path.tenant, 'u:' .. path.tenant .. ':' .. path.queue)
    for i = 1, 3 do
      local until_us, reason = match(found[i] or '', '^(%d+)|(.*)$')
      until_us, reason = tonumber(until_us), reason and match(reason, '^(.*)\1%d+|[^\1]*$') or reason
      if until_us == 0 then return 'paused -1 ' .. reason end
      if until_us and until_us > time_us then return format('paused %d %s', until_us - time_us, reason) end
    end
  end

  -- unique_refused returns the refusal of a job whose unique key another holds, or whose tenant has as many as it may.
  function rare.unique_refused(job)
    local holder = uniques[job.unique] or redis.call('GET', P .. 'unique:' .. job.unique)
    if not holder then return uniques_full(job, time_us) end
    local wait = redis.call('PTTL', P .. 'unique:' .. job.unique)
    return format('unique %d %s', wait > 0 and wait * 1000 or job.unique_for, holder)
  end

  -- parked returns the refusal of a job whose downstream's breaker is not closed, when as many wait for it as may.
  local parkings = {}
  function rare.parked(job)
    local downstream = sub(record_lane(job.rec), 2)
    local g = downstream ~= '' and gate('b:' .. downstream)
    if not g or job.start then return nil end
    local parking = parkings[downstream]
    if not parking then
      local most = redis.call('HMGET', P .. 'maxparked', downstream, '')
      parking = { most = tonumber(most[1] or most[2] or math.huge), waiting = tonumber(redis.call('HGET', WAITS, downstream) or 0) }
      parkings[downstream] = parking
    end
    if parking.waiting < parking.most then
      job.parking = parking
      return nil
    end
    local at = redis.call('ZSCORE', DUE, 'b' .. downstream)
    return format('parked %d %d %s', at and math.max(0, score_of(at) - time_us) or -1, parking.waiting, downstream)
  end

  local function spill_add(job)
    local name, key, rec = job.depth, job.key, job.stamped
    redis.call('ZADD', P .. 'spill:' .. name, format('%d', number_at(rec, 7)), key)
    redis.call('SADD', SPILLS, name)
    if job.start then redis.call('HSET', P .. 'starts', key, format('%d', job.start)) end
    if byte(rec, 2) % 2 == 1 then due_add(DUE, number_at(rec, 15) + 1, 'x' .. key) end
  end

  -- drop_oldest makes room for a job with older ones of its tenant and queue.
  local function drop_oldest(job)
    local q = queue_open(job.path.queue)
    for _, v in ipairs(job.victims) do
      local cl, lane = class_open(q, byte(v.rec, 3) + 1), record_lane(v.rec)
      redis.call('ZREM', lane_key(cl, job.path.tenant, lane), sub(v.rec, 7, 14) .. sub(v.rec, COST_AT, COST_AT + 3)
        .. match(v.key, ':(.*)$'))
      waiting_add(cl, lane, -1)
      old_remove(v.key, v.rec)
      lane_shrunk(cl, job.path.tenant, lane)
      dead_letter(v.key, v.rec, 'dropped', '', time_us)
    end
  end

  -- uploads_drop drops the payloads of the jobs that have an answer already, which are those that are refused.
  function rare.uploads_drop()
    local dropped_payloads = {}
    for i, job in ipairs(jobs) do
      if job.uploaded and answers[i] then dropped_payloads[#dropped_payloads + 1] = job.uploaded end
    end
    if #dropped_payloads > 0 then redis.call('UNLINK', unpack(dropped_payloads)) end
  end

  -- refused ends a call that admits nothing: room is made for the next.
  function rare.refused()
    rare.uploads_drop()
    if not crowded then return end
    queues_forget(time_us)
    state_write()
  end

  function rare.place_and_fill()
    for _, i in ipairs(admitted) do
      if jobs[i].redrive then letter_remove(jobs[i].key, jobs[i].live) end
    end
    for _, i in ipairs(admitted) do
      if jobs[i].victims then drop_oldest(jobs[i]) end
    end
    for _, i in ipairs(admitted) do
      local job = jobs[i]
      local q = queue_open(job.path.queue)
      if (q.maker or job.start) and not queue_known(q.name) then made_note(job) end
      if job.uploaded then
        redis.call('RENAME', job.uploaded, P .. 'large:' .. job.key)
        redis.call('PERSIST', P .. 'large:' .. job.key)
      end
      if job.unique then
        redis.call('SET', P .. 'unique:' .. job.unique, job.key, 'PX', math.ceil(job.unique_for / 1000))
        if unique_stays(job) then
          uniques_add(job, time_us)
        else
          redis.call('HSET', UKEYS, job.key, job.unique)
        end
      end
      if job.depth and not job.spilled then depth_add(job.depth, 1, job.size) end
      if job.spilled then
        spill_add(job)
        job.position = redis.call('ZCARD', P .. 'spill:' .. job.depth)
      elseif job.start then
        due_add(LATER, job.start, job.key)
        ahead_add(job, time_us)
      else
        old_add(job.key, job.stamped)
        local cl = class_open(q, job.path.class)
        job.position = lane_place(cl, job.path.tenant, record_lane(job.stamped), job.score, job.member)
        refill[q.name] = true
      end
    end
    if crowded then queues_forget(time_us) end
    redrives_tell()
    local continues = fill(time_us)
    local straight = {}
    for _, key in ipairs(dispatched) do straight[key] = true end
    for _, i in ipairs(admitted) do
      local job = jobs[i]
      if job.spilled then
        answers[i] = format('spilled %d', job.position) .. job.left
      elseif job.start then
        answers[i] = format('later %d', job.start - time_us) .. job.left
      else
        answers[i] = straight[job.key] and 'straight' .. job.left or admitted_line(job, job.position)
      end
      if job.victims then answers[i] = format('dropped %d ', #job.victims) .. answers[i] end
    end
    return { continues and 'more' or 'decided', unpack(answers) }
  end

  return rare
end

local rare_made
local function rare()
  rare_made = rare_made or rare_make()
  return rare_made
end

local function jobs_read(at)
  while at <= #ARGV do
    local rec = ARGV[at + 2]
    local flags = byte(rec, 2)
    local index = tonumber(ARGV[at])
    local job = { path = paths[math.abs(index)], redrive = index < 0, id = ARGV[at + 1], rec = rec, flags = flags,
      cost = cost_at(rec, COST_AT), deadline = number_at(rec, 15) }
    job.key = job.path.tenant .. ':' .. job.id
    at = at + 3
    if job.redrive then
      job.by = ARGV[at]
      at = at + 1
    end
    if flags > 1 then at = rare().options(job, at) end
    jobs[#jobs + 1], job_keys[#jobs + 1] = job, job.key
  end
end

-- known marks the jobs that live or have ended within the window.
local function known()
  local live = redis.call('HMGET', JOBS, unpack(job_keys))
  local generation = state_num('gen')
  local young = state_num('en') > 0 and redis.call('SMISMEMBER', ended_key(generation), unpack(job_keys))
  local old = state_num('eo') > 0 and redis.call('SMISMEMBER', ended_key(generation - 1), unpack(job_keys))
  for i, job in ipairs(jobs) do
    job.known = live[i] or young and young[i] == 1 or old and old[i] == 1
    if job.redrive then
      job.live, job.again = live[i], live[i] and sub(live[i], 7, 14) ~= sub(job.rec, 7, 14)
      job.gone = not job.again and not redis.call('ZSCORE', P .. 'dead', job.key)
    end
  end
end

local state_fields = { 'pv', 'pat', 'gb', 'gm', 'eo', 'accepted', 'np', 'nk', 'ma', 'mf' }
local jobs_at = paths_read()
for i = 1, PATHS do
  local queue = paths[i].queue
  state_fields[#state_fields + 1] = 'q:' .. queue
  state_fields[#state_fields + 1] = 'cfg:' .. queue
  state_fields[#state_fields + 1] = 'pools:' .. queue
end
call_begin(time_us, state_fields)
if (state_get('pv') or '0') ~= VERSION then return { 'stale', state_get('pv') or '0' } end
buckets_read()
jobs_read(jobs_at)
known()

local ended_count = state_num('en') + state_num('eo')
local suspends, parks, bounds_any = state_num('np') > 0, state_num('nk') > 0 and gates_any(), state_num('nb') > 0
local last_seq = state_num('seq')
local arrival = u64(time_us)
for i, job in ipairs(jobs) do
  local cost = job.cost * 1000000
  local base = job.start or time_us
  if job.gone then
    answers[i] = 'gone'
  elseif job.again or job.known and not job.redrive or seen[job.key] then
    answers[i] = 'duplicate'
  elseif ended_count >= ENDED_CAP then
    answers[i] = 'dedup'
  elseif job.flags % 2 == 1 and job.deadline < base then
    answers[i] = 'deadline'
  else
    local q, makes = queue_open(job.path.queue), makes_queue(job.path.queue)
    answers[i] = job.payload == 0 and 'memory' or makes and rare().queue_refused(job.path) or suspends and rare().suspension(job.path) or job.unique and rare().unique_refused(job)
      or parks and rare().parked(job)
      or (job.start or state_num('wl') > 0) and rare().lanes_full(job, time_us) or decide(job.path, cost) or memory_left() == 0 and 'memory'
      or (bounds_any or q.overflow ~= '-' or memory_left()) and rare().overflow(job, memory_left()) or nil
    if not answers[i] then
      charge(job.path, cost)
      job.left = left_of(job.path)
      seen[job.key] = true
      last_seq = last_seq + 1
      local seq = u64(last_seq)
      local score
      if q.wait > 0 and (job.flags % 2 == 0 or job.deadline > base + q.wait) then
        job.flags = job.flags - job.flags % 2 + 1 + TIMED
        job.score = base + q.wait
        score = u64(job.score)
      elseif job.flags % 2 == 1 then
        job.score, score = job.deadline, sub(job.rec, 15, 22)
      elseif job.start then
        job.score = base + q.horizon
        score = u64(job.score)
      else
        job.score = time_us + q.horizon
        q.undated = q.undated or u64(job.score)
        score = q.undated
      end
      if job.depth and not job.spilled then job.flags = job.flags + COUNTED end
      if job.redrive and record_has(job.live, HISTORY) then job.flags = job.flags + HISTORY end
      if makes then rare().queue_made(job.path) end
      if job.unique then uniques[job.unique] = job.key end
      if job.parking then job.parking.waiting = job.parking.waiting + 1 end
      job.stamped = record_stamp(job.rec, job.flags, seq, score, arrival)
      writes[#writes + 1] = job.key
      writes[#writes + 1] = job.stamped
      job.member = seq .. sub(job.rec, COST_AT, COST_AT + 3) .. job.id
      admitted[#admitted + 1] = i
    end
  end
end
if #admitted == 0 then
  if rare_made then rare_made.refused() end
  return { 'decided', unpack(answers) }
end

local answer = redis.pcall('HSET', JOBS, unpack(writes))
if type(answer) == 'table' and answer.err then
  if not match(answer.err, 'OOM') then return redis.error_reply(answer.err) end
  for _, i in ipairs(admitted) do answers[i] = 'memory' end
  if rare_made then rare_made.uploads_drop() end
  return { 'decided', unpack(answers) }
end

buckets_write(time_us)
if rare_made then rare_made.uploads_drop() end
local redriven = 0
for _, i in ipairs(admitted) do
  if jobs[i].redrive then redriven = redriven + 1 end
end
state_set('seq', last_seq)
state_add('accepted', #admitted - redriven)

-- gates_apart reports whether no gate stands on a job's way. Where there are none but breakers and `ng` names them, that is
-- known; else one call asks for all that might.
local function gates_apart(path, downstream)
  if not gates_any() then return true end
  if state_num('nh') > 0 then return false end
  local counts, names = match(state_get('ng'), '^([^|]*)(.*)$')
  if match(counts, '^b%d+$') and (downstream == '' or names ~= '') then
    return downstream == '' or not string.find(names .. '|', '|' .. downstream .. '|', 1, true)
  end
  caps_ask(path.queue, path.tenant, downstream)
  ask('r:' .. path.tenant)
  if downstream ~= '' then
    ask('b:' .. downstream)
    ask('s:' .. downstream)
  end
  return not any_on_way()
end

-- place_alone serves the two commonest cases of a lone job that no gate stands before: nobody is runnable in the queue and
-- its one pool has room, so that the job goes straight to the workers; or no pool has room and the job joins its tenant's
-- only lane. It returns nil in any other case, and has then changed nothing.
local function place_alone()
  local i = admitted[1]
  local job = jobs[i]
  if #admitted > 1 or job.flags > 0 or job.start or job.redrive or job.depth then return nil end
  local lane = record_lane(job.stamped)
  local downstream = sub(lane, 2)
  if not gates_apart(job.path, downstream) then return nil end
  local q, c = queue_open(job.path.queue), job.path.class
  local id = state_get('pools:' .. q.name) or ''
  local slots = match(id ~= '' and state_get('pool:' .. id) or '', '^(%d+)|%a|%d+|%d+|[^,]*$')
  if id ~= '' and not slots then return nil end -- several pools, or a pool of several queues
  local ready = P .. 'ready:' .. id
  if slots and redis.call('XLEN', ready) < tonumber(slots) then
    if not nobody_runs(q) then return nil end
    if downstream ~= '' then redis.call('HINCRBY', P .. 'holds', id .. ':' .. downstream, 1) end
    state_add('seq', 1) -- the tenant enters, at V, and leaves again: its tag is not kept, because nobody is left
    pattern_commit(q, c)
    q.dispatched, q.touched = 1, true
    local uncounted = gates_any() and caps_version() or ''
    if uncounted == '' then
      redis.call('XADD', ready, '*', 'j', job.key, 'r', writes[2])
    else
      redis.call('XADD', ready, '*', 'j', job.key, 'r', writes[2], 'u', uncounted)
    end
    answers[i] = 'straight' .. job.left
  else
    local line = (c - 1) .. ':' .. q.name
    local x = redis.call('HGET', P .. 'ten:' .. line, job.path.tenant)
    if not x or sub(x, 10) ~= lane and sub(x, 10) ~= '+' .. lane then return nil end
    local lane_key = P .. 'lane:' .. line .. ':' .. job.path.tenant .. ':' .. lane
    redis.call('ZADD', lane_key, format('%d', job.score), job.member)
    q.waiting[c], q.touched, q.busy = q.waiting[c] + 1, true, sub(x, 1, 1) == 'a'
    if #lane > 1 then redis.call('HINCRBY', P .. 'waits', sub(lane, 2), 1) end
    answers[i] = admitted_line(job, redis.call('ZCARD', lane_key))
  end
  queue_write(time_us)
  state_write()
  return { 'decided', unpack(answers) }
end

return place_alone() or rare().place_and_fill()
