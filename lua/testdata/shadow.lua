-- shadow asks the limits of a candidate what they would have answered, from buckets of their own, and counts the answers.
-- KEYS[1] state  hash; the partition's other keys share its hash tag and are named after it
-- ARGV[1] now  microseconds, "" for Redis TIME
-- ARGV[2] version  of the policy that has the candidate
-- ARGV[3] id  of the candidate; the counts of another begin anew
-- ARGV[4] bucket_cap  largest number of buckets of a tenant
-- ARGV[5] global_rate  tokens a second, "" for no bucket
-- ARGV[6] global_burst  micro-tokens
-- ARGV[7] paths  number of P
-- ARGV[8] ...  what the fragment path says, then of each question: path from 1, tokens
-- Reply {"stale", version} or {"counted"}
-- Never touches the buckets in force.
-- luacheck: ignore 211
local STATE, NOW, VERSION, ID = KEYS[1], ARGV[1], ARGV[2], ARGV[3]
local BUCKET_CAP, GLOBAL_RATE, GLOBAL_BURST = tonumber(ARGV[4]), tonumber(ARGV[5]), tonumber(ARGV[6])
local PATHS, PATHS_AT = tonumber(ARGV[7]), 8
local BUCKETS, GLOBAL_BUCKET = 'x:' .. ID .. ':', 'xgb'
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
local time_us = now_us(NOW)

local questions_at = paths_read()
clock_begin(time_us, { 'pv', 'pat', 'xgb', 'gm' })
if (state_get('pv') or '0') ~= VERSION then return { 'stale', state_get('pv') or '0' } end
local COUNTS = P .. 'shadow'
local begins = redis.call('HGET', COUNTS, 'id') ~= ID
if begins then state_set('xgb', false) end
buckets_read()
local counts = {}
for at = questions_at, #ARGV, 2 do
  local path, cost = paths[tonumber(ARGV[at])], ARGV[at + 1] * 1000000
  local refusal = decide(path, cost)
  local field = refusal and 'refused:' .. match(refusal, ' (%d)') or 'allowed'
  if not refusal then charge(path, cost) end
  counts[field] = (counts[field] or 0) + 1
end
if begins then
  redis.call('UNLINK', COUNTS)
  redis.call('HSET', COUNTS, 'id', ID, 'since', format('%d', time_us))
end
for field, n in pairs(counts) do redis.call('HINCRBY', COUNTS, field, n) end
buckets_write(time_us)
state_write()
return { 'counted' }
