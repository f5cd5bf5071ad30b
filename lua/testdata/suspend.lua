-- suspend stops admission for a queue, a tenant or a tenant in a queue, or resumes it, and tells the audit who did.
-- KEYS[1] state  hash; the partition's other keys share its hash tag and are named after it
-- ARGV[1] now  microseconds, "" for Redis TIME
-- ARGV[2] name  q:QUEUE, t:TENANT or u:TENANT:QUEUE
-- ARGV[3] duration  microseconds, 0 for ever, "" to resume
-- ARGV[4] keep  "1" leaves one alone that ends later
-- ARGV[5] by  who does it and why, as fragments/audit.lua reads it; callers are told the reason
-- Reply {"suspended" | "kept", its end, microseconds, 0 for never} or {"resumed" | "none", 0}
-- Never touches a job that has entered.
-- luacheck: ignore 211
local STATE, NOW, NAME, DURATION, KEEP, BY = KEYS[1], ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5]
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
local by_read, hold_reason, audit_act
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
function hold_reason(by, now)
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
local by, until_us, word = by_read(BY), 0, 'none'
if DURATION == '' then
  if redis.call('HDEL', SUSPENDED, NAME) == 1 then word = 'resumed' end
else
  until_us, word = DURATION ~= '0' and now + DURATION or 0, 'suspended'
  local before = KEEP == '1' and tonumber(match(redis.call('HGET', SUSPENDED, NAME) or '', '^(%d+)|'))
  if before and (before == 0 or until_us > 0 and before > until_us) then
    until_us, word = before, 'kept'
  end
end
if word ~= 'none' and word ~= 'kept' then
  redis.call('ZREM', DUE, 's' .. NAME)
  if word == 'suspended' then
    redis.call('HSET', SUSPENDED, NAME, format('%d|', until_us) .. hold_reason(by, now))
    if until_us > 0 then due_add(DUE, until_us, 's' .. NAME) end
  end
  audit_act(now, by, NAME, 0, tonumber(DURATION))
  state_set('np', redis.call('HLEN', SUSPENDED))
end
state_write()
return { word, format('%d', until_us) }
