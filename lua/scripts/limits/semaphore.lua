-- semaphore leases permits of a semaphore: limits of what is done at a time outside of jobs.
-- KEYS[1] state  hash; the partition's other keys share its hash tag and are named after it
-- ARGV[1] now  microseconds, "" for Redis TIME
-- ARGV[2] what  "acquire", "extend", "release" or "look"
-- ARGV[3] name
-- ARGV[4] token  of who asks, "" to look
-- ARGV[5] version  of the policy that max comes from; acquire alone
-- ARGV[6] permits
-- ARGV[7] max  permits at a time
-- ARGV[8] lease  microseconds, also to extend
-- ARGV[9] queue  "1" to wait in line where there is no room
-- Reply {"stale"}, or {word, permits held, who waits, who waits before this one, microseconds until its lease ends, or where it was
--   refused until the first of all does, for how long the first in line waits, now, the limit as last heard}; the word is granted, waiting, refused, large (more than
--   max), other (the token is for another number), crowded, named (bounds of what is kept), back, ended or look
-- Never has more than max held, by a clock that goes on by five seconds a call at the most (`dc`), and lets nobody pass who came later.
-- @flag allow-oom
-- @relief
local MAX_HOLDERS, MAX_LINE, MAX_SEMAPHORES, MAX_SEMAPHORES_OF_ONE = 10000, 1000, 10000, 1000
-- A place in line is kept for PATIENCE after its last call; a token whose lease ended is known as such for REMEMBERED.
local PATIENCE, REMEMBERED = 2000000, 60000000
-- What a call does at most for others, and the time to live of keys that nobody sweeps, in milliseconds.
local SWEPT, KEPT_MS = 64, 93600000
local KINDS = { 'sem:', 'semends:', 'semline:', 'sempatience:', 'semended:' }

local function semaphore_open(name, token)
  local s = { name = name, token = token, own = 'h:' .. token, place = 'w:' .. token }
  for i = 1, #KINDS do s[i] = call.prefix .. KINDS[i] .. name end
  s.key, s.ends, s.line, s.patience, s.ended = s[1], s[2], s[3], s[4], s[5]
  local v = redis.call('HMGET', s.key, 'held', 'seq', 'kept', 'waiting', 'ended', 'max', s.own, s.place)
  s.held, s.seq, s.kept = tonumber(v[1] or 0), tonumber(v[2] or 0), tonumber(v[3] or 0)
  s.waiting, s.gone = tonumber(v[4] or 0), tonumber(v[5] or 0)
  s.version, s.max = match(v[6] or '|0', '^(.*)|(%d+)$')
  s.max, s.permits, s.waits = tonumber(s.max), tonumber(v[7]), v[8]
  s.text = v[6]
  return s
end

-- semaphore_forget takes away all that is kept of one.
local function semaphore_forget(name)
  local gone = {}
  for i = 1, #KINDS do gone[i] = call.prefix .. KINDS[i] .. name end
  redis.call('DEL', unpack(gone))
  if redis.call('ZREM', keys.sems, name) == 0 then return end
  local of = match(name, '^([^:]*):') or ''
  if redis.call('HINCRBY', keys.semsof, of, -1) <= 0 then redis.call('HDEL', keys.semsof, of) end
end

-- semaphore_fits makes sure that there may be another one, and forgets what nobody came back to.
local function semaphore_fits(name)
  local over = redis.call('ZRANGEBYSCORE', keys.sems, '-inf', format('%d', state_num('dc')), 'LIMIT', 0, 2)
  for _, other in ipairs(over) do
    if other ~= name then semaphore_forget(other) end
  end
  local of = match(name, '^([^:]*):') or ''
  if redis.call('ZCARD', keys.sems) >= MAX_SEMAPHORES then return false end
  if tonumber(redis.call('HGET', keys.semsof, of) or 0) >= MAX_SEMAPHORES_OF_ONE then return false end
  redis.call('HINCRBY', keys.semsof, of, 1)
  return true
end

-- semaphore_keep keeps it for so long: seldom, as it keeps it for longer than it must.
local function semaphore_keep(s, till)
  if till + REMEMBERED <= s.kept then return end
  s.kept = till + 2 * REMEMBERED
  redis.call('ZADD', keys.sems, format('%d', s.kept), s.name)
  s.expires = true
end

-- prefixed returns fields of tokens.
local function prefixed(kind, tokens)
  local fields = {}
  for i, token in ipairs(tokens) do fields[i] = kind .. token end
  return fields
end

local function semaphore_leave(s, tokens)
  redis.call('HDEL', s.key, unpack(prefixed('w:', tokens)))
  redis.call('ZREM', s.line, unpack(tokens))
  redis.call('ZREM', s.patience, unpack(tokens))
  s.waiting = s.waiting - #tokens
end

-- semaphore_sweep ends leases whose time is over, and the places of those who do not come back.
local function semaphore_sweep(s, now)
  local till = format('%d', now)
  local over = redis.call('ZRANGEBYSCORE', s.ends, '-inf', till, 'WITHSCORES', 'LIMIT', 0, SWEPT)
  if #over > 0 then
    local tokens, ended = {}, {}
    for i = 1, #over, 2 do
      tokens[#tokens + 1] = over[i]
      ended[i], ended[i + 1] = format('%d', over[i + 1] + REMEMBERED), over[i]
      if over[i] == s.token then s.permits = nil end
    end
    local fields = prefixed('h:', tokens)
    for _, permits in ipairs(redis.call('HMGET', s.key, unpack(fields))) do s.held = s.held - permits end
    redis.call('HDEL', s.key, unpack(fields))
    redis.call('ZREM', s.ends, unpack(tokens))
    s.gone = s.gone + redis.call('ZADD', s.ended, unpack(ended))
    s.expires = true
  end
  if s.gone > 0 then s.gone = s.gone - redis.call('ZREMRANGEBYSCORE', s.ended, '-inf', till) end
  if s.waiting > 0 then
    local away = redis.call('ZRANGEBYSCORE', s.patience, '-inf', till, 'LIMIT', 0, SWEPT)
    if #away > 0 then semaphore_leave(s, away) end
    for _, token in ipairs(away) do
      if token == s.token then s.waits = false end
    end
  end
end

local function semaphore_has(s, permits)
  return s.held + permits <= s.max and redis.call('ZCARD', s.ends) < MAX_HOLDERS
end

local function semaphore_grant(s, token, permits, till)
  redis.call('HSET', s.key, 'h:' .. token, format('%d', permits))
  redis.call('ZADD', s.ends, till, token)
  s.held = s.held + permits
  if s.gone > 0 then s.gone = s.gone - redis.call('ZREM', s.ended, token) end
end

-- semaphore_serve leases what is free to those in line, in order. A lease ends with the patience of who waits, until it has heard of it.
local function semaphore_serve(s, version)
  if s.version ~= version then return end
  for _ = 1, SWEPT do
    if s.waiting == 0 then return end
    local first = redis.call('ZRANGE', s.line, 0, 0)
    local permits = tonumber(match(redis.call('HGET', s.key, 'w:' .. first[1]), '^(%d+)'))
    if not semaphore_has(s, permits) then return end
    local till = redis.call('ZSCORE', s.patience, first[1])
    semaphore_leave(s, first)
    semaphore_grant(s, first[1], permits, till)
    if first[1] == s.token then s.permits, s.waits = permits, false end
  end
end

-- semaphore_ask leases permits, or has who asks stand in line.
local function semaphore_ask(s, now, permits, lease, queue)
  if s.permits then
    if s.permits ~= permits then return 'other' end
    redis.call('ZADD', s.ends, format('%d', now + lease), s.token)
    semaphore_keep(s, now + lease)
    return 'granted', lease
  end
  if s.waits then
    redis.call('ZADD', s.patience, format('%d', now + PATIENCE), s.token)
    semaphore_keep(s, now + PATIENCE)
    return 'waiting'
  end
  if s.kept == 0 and not semaphore_fits(s.name) then return 'named' end
  if s.waiting == 0 and semaphore_has(s, permits) then
    semaphore_grant(s, s.token, permits, format('%d', now + lease))
    semaphore_keep(s, now + lease)
    return 'granted', lease
  end
  if not queue then return 'refused' end
  if s.waiting >= MAX_LINE then return 'crowded' end
  s.seq, s.waiting, s.waits = s.seq + 1, s.waiting + 1, true
  redis.call('HSET', s.key, s.place, format('%d|%d', permits, now))
  redis.call('ZADD', s.line, format('%d', s.seq), s.token)
  redis.call('ZADD', s.patience, format('%d', now + PATIENCE), s.token)
  s.expires = true
  semaphore_keep(s, now + PATIENCE)
  return 'waiting'
end

local function semaphore_acquire(s, now, version, permits, max, lease, queue)
  if s.waits and tonumber(match(s.waits, '^(%d+)')) ~= permits then return 'other' end
  s.version, s.max = version, max
  if permits > max and not s.permits then
    if s.waits then semaphore_leave(s, { s.token }) end
    semaphore_serve(s, version)
    return 'large'
  end
  semaphore_serve(s, version)
  return semaphore_ask(s, now, permits, lease, queue)
end

local function semaphore_release(s, version)
  if s.permits then
    redis.call('HDEL', s.key, s.own)
    redis.call('ZREM', s.ends, s.token)
    s.held = s.held - s.permits
  elseif s.waits then
    semaphore_leave(s, { s.token })
  elseif s.gone > 0 and redis.call('ZSCORE', s.ended, s.token) then
    return 'ended'
  end
  semaphore_serve(s, version)
  return 'back'
end

local function semaphore_extend(s, now, lease)
  if not s.permits then return 'ended' end
  redis.call('ZADD', s.ends, format('%d', now + lease), s.token)
  semaphore_keep(s, now + lease)
  return 'granted', lease
end

-- semaphore_close writes what is left of it, where there is any.
local function semaphore_close(s)
  if s.kept == 0 then return end
  if s.held == 0 and s.waiting == 0 and s.gone == 0 then return semaphore_forget(s.name) end
  local max = s.version .. '|' .. format('%d', s.max)
  redis.call('HSET', s.key, 'held', format('%d', s.held), 'seq', format('%d', s.seq), 'kept', format('%d', s.kept),
    'waiting', format('%d', s.waiting), 'ended', format('%d', s.gone), 'max', max)
  if not s.expires then return end
  for i = 1, #KINDS do redis.call('PEXPIRE', s[i], KEPT_MS) end
end

function scripts.semaphore(KEYS, ARGV)
  local STATE, NOW, WHAT, NAME, TOKEN, VERSION = KEYS[1], ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5]
  local PERMITS, MAX, LEASE, QUEUE = tonumber(ARGV[6]), tonumber(ARGV[7]), tonumber(ARGV[8]), ARGV[9]
  local time_us = now_us(NOW)
  clock_begin(time_us, { 'pv' })
  local version = state_get('pv') or '0'
  if WHAT == 'acquire' and version ~= VERSION then return { 'stale' } end
  local now = state_num('dc')
  local s = semaphore_open(NAME, TOKEN)
  if s.kept > 0 then semaphore_sweep(s, now) end

  local word, left = 'look', nil
  if WHAT == 'acquire' then
    word, left = semaphore_acquire(s, now, version, PERMITS, MAX, LEASE, QUEUE == '1')
  elseif WHAT == 'extend' then
    word, left = semaphore_extend(s, now, LEASE)
  elseif WHAT == 'release' then
    word = semaphore_release(s, version)
  end
  local place, oldest = s.waiting, 0
  if word == 'waiting' then place = redis.call('ZRANK', s.line, TOKEN) end
  if word == 'look' and s.waiting > 0 then
    local first = redis.call('ZRANGE', s.line, 0, 0)[1]
    oldest = now - match(redis.call('HGET', s.key, 'w:' .. first), '|(%d+)$')
  end
  if not left and s.held > 0 then left = redis.call('ZRANGE', s.ends, 0, 0, 'WITHSCORES')[2] - now end
  left = math.max(0, left or 0)
  semaphore_close(s)
  state_write()
  return { word, format('%d', s.held), format('%d', s.waiting), format('%d', place), format('%d', left), format('%d', oldest),
    format('%d', time_us), format('%d', s.max) }
end
