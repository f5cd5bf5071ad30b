-- purge ends dead letters for good.
-- KEYS[1] state  hash; the partition's other keys share its hash tag and are named after it
-- ARGV[1] now  microseconds, "" for Redis TIME
-- ARGV[2] by  who does it and why, as fragments/audit.lua reads it
-- ARGV[3] ...  keys of jobs
-- Reply {"purged", a word a job}: purged, or unknown where it is no dead letter
-- Never touches a job that may still run.
-- luacheck: ignore 211
local STATE, NOW, BY, KEYS_AT = KEYS[1], ARGV[1], ARGV[2], 3
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
-- jobs: the jobs hash, and the sets of ended ids: two generations, `en` and `eo` their sizes; the older goes when it
-- is a window old.
local JOBS = P .. 'jobs'

local function ended_key(generation)
  return P .. 'ended:' .. format('%d', generation)
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
local LARGE, TIMED, COUNTED, UNIQUE_END, HISTORY, UNIQUE_START = 2, 4, 8, 16, 32, 64
local record_has, record_queue
do
-- header: a job's value in the jobs hash. Bytes, counted from 1:
--   1 version · 2 flags · 3 class, from 0 · 4 attempts · 5 max attempts · 6 suspicion: 0, or 1 + the deliveries lost that
--   count · 7-14 seq · 15-22 score, 23-30 arrival, in microseconds · 31-34 cost in tokens · 35 length of queue · 36 length
--   of downstream · 37 queue, downstream, and the body, opaque here
-- Flags: 1 has a deadline · 2 payload under a key of its own · 4 the deadline is its queue's longest wait · 8 counts in
-- the depth of its tenant and queue · 32 has a history · 16 and 64 a unique key, released: 16 at the end, 64 at the start, both when
-- its time is over · 128 on the way into admit, and while spilled: starts later.
-- Integers are big-endian. A lane's member is seq (8 bytes), cost (4), id.
local COST_AT, QUEUE_AT = 31, 37

local function has_flag(flags, bit)
  return floor(flags / bit) % 2 == 1
end

function record_has(rec, bit)
  return has_flag(byte(rec, 2), bit)
end

local function record_flagged(rec, bit)
  if record_has(rec, bit) then return rec end
  return sub(rec, 1, 1) .. char(byte(rec, 2) + bit) .. sub(rec, 3)
end

function record_queue(rec)
  return sub(rec, QUEUE_AT, QUEUE_AT + byte(rec, 35) - 1)
end

-- record_lane returns the lane that a record's deadline and downstream name.
local function record_lane(rec)
  local _, flags = byte(rec, 1, 2)
  local queue_length, downstream_length = byte(rec, 35, 36)
  local at = QUEUE_AT + queue_length
  return (flags % 2 == 1 and 'd' or 'n') .. sub(rec, at, at + downstream_length - 1)
end
end
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
local depth_open, depth_add, depth_leave
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

local function bound_open(tenant, queue)
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
local function total_bound(tenant)
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
local function job_size(key, rec)
  return #rec + (record_has(rec, LARGE) and redis.call('STRLEN', P .. 'large:' .. key) or 0)
end

-- depth_leave takes a job out of the depth that it counts in.
function depth_leave(key, rec)
  if record_has(rec, COUNTED) then depth_add(depth_name(key, rec), -1, -job_size(key, rec)) end
end

-- old_add and old_remove follow a counted job into and out of its lane.
local function old_add(key, rec)
  if not record_has(rec, COUNTED) then return end
  local score = (127 - byte(rec, 3)) * CLASS_STEP + number_at(rec, 7)
  redis.call('ZADD', P .. 'old:' .. depth_name(key, rec), format('%d', score), key)
end

local function old_remove(key, rec)
  if record_has(rec, COUNTED) then redis.call('ZREM', P .. 'old:' .. depth_name(key, rec), key) end
end

local function depth_write()
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
local letter_end
do
-- letter: dead letters stay in the jobs hash, stand in `dead`, in their queue's `dead:QUEUE` and in `letters:TENANT:QUEUE` by their
-- time, and `why` keeps their reason. ZSETs count them: `deadof` and `deadof:QUEUE` of each tenant, `deadin:TENANT` of each queue.
-- Letters of a release that did not count them are in none of these four.
-- `unique:TENANT:KEY` names the job that holds a unique key, `ukeys` the key that a job is to release.
local DEAD_CAP = 100000

local function unique_release(key)
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
local function leave(key, counter, rec)
  leave_plain(key, counter)
  suspect_forget(key, rec)
  depth_leave(key, rec)
  if record_has(rec, LARGE) then ended_keys[#ended_keys + 1] = P .. 'large:' .. key end
  if record_has(rec, HISTORY) then ended_keys[#ended_keys + 1] = P .. 'log:' .. key end
  if record_has(rec, UNIQUE_END) ~= record_has(rec, UNIQUE_START) then unique_release(key) end
end

-- job_gone counts a job that was met in its place, of a queue, and has no record: somebody, or a lost slot, has taken that away.
local function job_gone(key, queue)
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
local function letter_remove(key, rec, named)
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
function letter_end(key, counter, named)
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
local function dead_letter(key, rec, reason, text, now)
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
-- relief: a first write that a full Redis allows, which frees the rest of the script from the check. Only admit,
-- which adds data, begins with one that a full Redis refuses, and finish with XACK, which it allows.
redis.call('DEL', P .. 'relief')
local now = now_us(NOW)

call_begin(now, {})
local words, purged = {}, {}
for i = KEYS_AT, #ARGV do
  local dead = redis.call('ZSCORE', DEAD, ARGV[i])
  if dead then
    local queue = letter_end(ARGV[i], 'purged')
    if queue then purged[queue] = (purged[queue] or 0) + 1 end
  end
  words[#words + 1] = dead and 'purged' or 'unknown'
end
local by = by_read(BY)
for queue, n in pairs(purged) do audit_act(now, by, 'q:' .. queue, n) end
leave_write()
state_write()
return { 'purged', unpack(words) }
