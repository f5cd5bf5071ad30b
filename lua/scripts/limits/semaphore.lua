-- semaphore leases permits of a semaphore: limits of what is done at a time outside of jobs.
-- KEYS[1] state  hash; the partition's other keys share its hash tag and are named after it
-- ARGV[1] now  microseconds, "" for Redis TIME
-- ARGV[2] what  "acquire", "extend", "release" or "look"
-- ARGV[3] name
-- ARGV[4] token  of who asks, "" to look
-- ARGV[5] lease  microseconds, to acquire and to extend; the rest is there to acquire alone
-- ARGV[6] version  of the policy that max comes from
-- ARGV[7] permits
-- ARGV[8] max  permits at a time
-- ARGV[9] queue  "1" to wait in line where there is no room
-- ARGV[10] record  version of the record of its tenant that max comes from too, 1 for none; absent where tenants have no records, or it is no tenant's
-- ARGV[11] elsewhere  there where the record is in another partition, and has been compared
-- Reply {"stale"}, of another record {"stale", version of the policy, tenant, what is stored of its record}, {"back"} or {"ended"}, or {word, REPLY packed: permits held, who waits, who waits before this one, the limit as last heard, microseconds until its lease
--   ends, or where it was refused until the first of all does, for how long the first in line waits, now}; the word is granted, waiting, refused, large (more than
--   max), other (the token is for another number), crowded, named (bounds of what is kept), ended or look
-- Never has more than max held, by a clock that goes on by five seconds a call at the most (`dc`), and lets nobody pass who came later.
-- @flag allow-oom
-- @relief
local MAX_HOLDERS, MAX_LINE, MAX_SEMAPHORES, MAX_SEMAPHORES_OF_ONE = 10000, 1000, 10000, 1000
-- A place in line is kept for PATIENCE after its last call; a token whose lease ended is known as such for REMEMBERED.
local PATIENCE, REMEMBERED = 2000000, 60000000
-- What a call does at most for others, and the time to live of keys that nobody sweeps, in milliseconds.
local SWEPT, KEPT_MS = 64, 93600000
local REPLY = '<I4I4I4I4ddd'
-- sem:NAME is a HASH. '', which is no token, has its NUMBERS: the last number in line, until when it is kept, a time before which nothing of it is over, permits held,
-- who waits, tokens that are known to have ended, holders, the limit as last heard; and behind it the version of the policy that this comes from, and where a record
-- counts :VERSION of that. By such a one nobody in line is served but by the call of one who has compared it: a release does not know whether it is in force still.
-- TOKEN has HOLDING, the permits that it holds, or PLACE, those that it waits for and since when.
local NUMBERS, HOLDING, PLACE, HOLDING_SIZE, PLACE_SIZE = '<dddI4I4I4I4I4', '<I4', '<I4d', 4, 12
-- IN_USE is in the state: how many semaphores there are, how many of these are no tenant's, and a time before which none of them is to be forgotten.
local IN_USE = '<I4I4d'

-- SEMAPHORE is that of the call, to be written over by the next one's. What the own token has is written at the end: own is that, false for nothing, and
-- own_left where it held permits or stood in line, and has gone.
local SEMAPHORE = {
  name = '', token = '', key = '', text = false, seq = 0, kept = 0, due = 0, held = 0, waiting = 0, gone = 0, holders = 0, max = 0, version = '',
  permits = false, waits = false, own = false, own_left = false, expires = false,
}

local function semaphore_open(name, token)
  local s = SEMAPHORE
  s.name, s.token, s.key = name, token, call.prefix .. 'sem:' .. name
  s.permits, s.waits, s.own, s.own_left, s.expires = false, false, false, false, false
  local v = redis.call('HMGET', s.key, '', token)
  local text, own = v[1], v[2]
  s.text = text
  if text then
    local at
    s.seq, s.kept, s.due, s.held, s.waiting, s.gone, s.holders, s.max, at = struct_unpack(NUMBERS, text)
    s.version = sub(text, at)
  else
    s.seq, s.kept, s.due, s.held, s.waiting, s.gone, s.holders, s.max, s.version = 0, 0, math.huge, 0, 0, 0, 0, 0, ''
  end
  if own and #own == HOLDING_SIZE then
    s.permits = struct_unpack(HOLDING, own)
  elseif own and #own == PLACE_SIZE then
    s.waits = struct_unpack(PLACE, own)
  end
  return s
end

-- semaphore_tenant returns the field of the state that counts those of a semaphore's tenant, nil where it is no tenant's.
local function semaphore_tenant(name)
  local colon = string.find(name, ':', 1, true)
  return colon and 'sems:' .. sub(name, 1, colon - 1)
end

-- semaphores_read returns how many there are, how many of these are no tenant's, and a time before which none of them is to be forgotten.
local function semaphores_read()
  local in_use = state_get('sems')
  if not in_use then return 0, 0, math.huge end
  return struct_unpack(IN_USE, in_use)
end

local function semaphores_write(n, open, due) state_set('sems', n > 0 and struct_pack(IN_USE, n, open, due)) end

-- semaphore_count notes that there is one more, which is to be forgotten at some time, or one less.
local function semaphore_count(name, more, kept)
  local n, open, due = semaphores_read()
  local of = semaphore_tenant(name)
  if of then
    local its = state_num(of) + more
    state_set(of, its > 0 and its)
  else
    open = open + more
  end
  semaphores_write(n + more, open, math.min(due, kept))
end

-- semaphore_gone strikes one off that is not there any more.
local function semaphore_gone(name)
  if redis.call('ZREM', keys.sems, name) == 1 then semaphore_count(name, -1, math.huge) end
end

-- semaphore_forget takes away all that is kept of one.
local function semaphore_forget(name)
  local prefix = call.prefix
  redis.call('DEL', prefix .. 'sem:' .. name, prefix .. 'semends:' .. name, prefix .. 'semline:' .. name, prefix .. 'sempatience:' .. name, prefix .. 'semended:' .. name)
  semaphore_gone(name)
end

-- semaphore_fits makes sure that there may be another one, and forgets what nobody came back to.
local function semaphore_fits(name, now)
  local n, open, due = semaphores_read()
  if now >= due then
    for _, other in ipairs(redis.call('ZRANGEBYSCORE', keys.sems, '-inf', format('%d', now), 'LIMIT', 0, 2)) do
      if other ~= name then semaphore_forget(other) end
    end
    local first = redis.call('ZRANGE', keys.sems, 0, 0, 'WITHSCORES')[2]
    n, open = semaphores_read()
    semaphores_write(n, open, first and score_of(first) or math.huge)
  end
  local of = semaphore_tenant(name)
  return n < MAX_SEMAPHORES and (of and state_num(of) or open) < MAX_SEMAPHORES_OF_ONE
end

-- semaphore_keep keeps it for so long: seldom, as it keeps it for longer than it must.
local function semaphore_keep(s, till)
  if till + REMEMBERED <= s.kept then return end
  s.kept = till + 2 * REMEMBERED
  if redis.call('ZADD', keys.sems, format('%d', s.kept), s.name) == 1 then semaphore_count(s.name, 1, s.kept) end
  s.expires = true
end

-- semaphore_step takes some out of the line.
local function semaphore_step(s, tokens)
  redis.call('ZREM', call.prefix .. 'semline:' .. s.name, unpack(tokens))
  redis.call('ZREM', call.prefix .. 'sempatience:' .. s.name, unpack(tokens))
  s.waiting = s.waiting - #tokens
end

local function semaphore_leave(s, tokens)
  redis.call('HDEL', s.key, unpack(tokens))
  semaphore_step(s, tokens)
end

-- semaphore_first returns the first score of a set of its own, infinite for none.
local function semaphore_first(s, kind)
  local first = redis.call('ZRANGE', call.prefix .. kind .. s.name, 0, 0, 'WITHSCORES')[2]
  return first and score_of(first) or math.huge
end

-- semaphore_end ends leases whose time is over.
local function semaphore_end(s, till)
  local over = redis.call('ZRANGEBYSCORE', call.prefix .. 'semends:' .. s.name, '-inf', till, 'WITHSCORES', 'LIMIT', 0, SWEPT)
  if #over == 0 then return end
  local tokens, ended = {}, {}
  for i = 1, #over, 2 do
    tokens[#tokens + 1] = over[i]
    ended[i], ended[i + 1] = format('%d', over[i + 1] + REMEMBERED), over[i]
    if over[i] == s.token then s.permits = false end
  end
  for _, holding in ipairs(redis.call('HMGET', s.key, unpack(tokens))) do s.held = s.held - struct_unpack(HOLDING, holding) end
  redis.call('HDEL', s.key, unpack(tokens))
  redis.call('ZREM', call.prefix .. 'semends:' .. s.name, unpack(tokens))
  s.holders = s.holders - #tokens
  s.gone = s.gone + redis.call('ZADD', call.prefix .. 'semended:' .. s.name, unpack(ended))
  s.expires = true
end

-- semaphore_sweep ends leases whose time is over, and the places of those who do not come back.
local function semaphore_sweep(s, now)
  local till = format('%d', now)
  if s.holders > 0 then semaphore_end(s, till) end
  if s.gone > 0 then s.gone = s.gone - redis.call('ZREMRANGEBYSCORE', call.prefix .. 'semended:' .. s.name, '-inf', till) end
  if s.waiting > 0 then
    local away = redis.call('ZRANGEBYSCORE', call.prefix .. 'sempatience:' .. s.name, '-inf', till, 'LIMIT', 0, SWEPT)
    if #away > 0 then semaphore_leave(s, away) end
    for _, token in ipairs(away) do
      if token == s.token then s.waits = false end
    end
  end
  s.due = math.huge
  if s.holders > 0 then s.due = semaphore_first(s, 'semends:') end
  if s.gone > 0 then s.due = math.min(s.due, semaphore_first(s, 'semended:')) end
  if s.waiting > 0 then s.due = math.min(s.due, semaphore_first(s, 'sempatience:')) end
end

local function semaphore_has(s, permits)
  return s.held + permits <= s.max and s.holders < MAX_HOLDERS
end

-- semaphore_lease has a lease of a token end at a time.
local function semaphore_lease(s, token, till)
  redis.call('ZADD', call.prefix .. 'semends:' .. s.name, format('%d', till), token)
  if till < s.due then s.due = till end
end

local function semaphore_grant(s, token, permits, till)
  local holding = struct_pack(HOLDING, permits)
  if token == s.token then
    s.permits, s.waits, s.own = permits, false, holding
  else
    redis.call('HSET', s.key, token, holding)
  end
  semaphore_lease(s, token, till)
  s.expires = s.expires or s.holders == 0
  s.held, s.holders = s.held + permits, s.holders + 1
  if s.gone > 0 then s.gone = s.gone - redis.call('ZREM', call.prefix .. 'semended:' .. s.name, token) end
end

-- semaphore_serve leases what is free to those in line, in order. A lease ends with the patience of who waits, until it has heard of it.
local function semaphore_serve(s, version)
  if s.version ~= version then return end
  for _ = 1, SWEPT do
    if s.waiting == 0 or not semaphore_has(s, 1) then return end
    local first = redis.call('ZRANGE', call.prefix .. 'semline:' .. s.name, 0, 0)
    local permits = struct_unpack(PLACE, redis.call('HGET', s.key, first[1]))
    if not semaphore_has(s, permits) then return end
    local till = score_of(redis.call('ZSCORE', call.prefix .. 'sempatience:' .. s.name, first[1]))
    semaphore_step(s, first)
    semaphore_grant(s, first[1], permits, till)
  end
end

-- semaphore_wait keeps the place of who asks, and returns how many are before it.
local function semaphore_wait(s, now, before)
  redis.call('ZADD', call.prefix .. 'sempatience:' .. s.name, format('%d', now + PATIENCE), s.token)
  if now + PATIENCE < s.due then s.due = now + PATIENCE end
  semaphore_keep(s, now + PATIENCE)
  return 'waiting', nil, before
end

-- semaphore_ask leases permits, or has who asks stand in line.
local function semaphore_ask(s, now, permits, lease, queue)
  if s.permits then
    if s.permits ~= permits then return 'other' end
    semaphore_lease(s, s.token, now + lease)
    semaphore_keep(s, now + lease)
    return 'granted', lease
  end
  if s.waits then return semaphore_wait(s, now, redis.call('ZRANK', call.prefix .. 'semline:' .. s.name, s.token)) end
  if s.kept == 0 and not semaphore_fits(s.name, now) then return 'named' end
  if s.waiting == 0 and semaphore_has(s, permits) then
    semaphore_grant(s, s.token, permits, now + lease)
    semaphore_keep(s, now + lease)
    return 'granted', lease
  end
  if not queue then return 'refused' end
  if s.waiting >= MAX_LINE then return 'crowded' end
  s.expires = s.expires or s.waiting == 0
  s.seq, s.waiting, s.waits, s.own = s.seq + 1, s.waiting + 1, permits, struct_pack(PLACE, permits, now)
  redis.call('ZADD', call.prefix .. 'semline:' .. s.name, format('%d', s.seq), s.token)
  return semaphore_wait(s, now, s.waiting - 1)
end

local function semaphore_acquire(s, now, version, permits, max, lease, queue)
  if s.waits and s.waits ~= permits then return 'other' end
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
    s.own_left, s.held, s.holders = true, s.held - s.permits, s.holders - 1
  elseif s.waits then
    semaphore_leave(s, { s.token })
  elseif s.gone > 0 and redis.call('ZSCORE', call.prefix .. 'semended:' .. s.name, s.token) then
    return 'ended'
  end
  semaphore_serve(s, version)
  return 'back'
end

local function semaphore_extend(s, now, lease)
  if not s.permits then return 'ended' end
  semaphore_lease(s, s.token, now + lease)
  semaphore_keep(s, now + lease)
  return 'granted', lease
end

-- semaphore_close writes what is left of it, where there is any.
local function semaphore_close(s)
  if s.kept == 0 then return end
  if s.held == 0 and s.waiting == 0 and s.gone == 0 then
    redis.call('DEL', s.key, call.prefix .. 'semends:' .. s.name)
    return semaphore_gone(s.name)
  end
  local text = struct_pack(NUMBERS, s.seq, s.kept, s.due, s.held, s.waiting, s.gone, s.holders, s.max) .. s.version
  if s.own then
    redis.call('HSET', s.key, '', text, s.token, s.own)
  elseif text ~= s.text then
    redis.call('HSET', s.key, '', text)
  end
  if s.own_left then
    redis.call('HDEL', s.key, s.token)
    redis.call('ZREM', call.prefix .. 'semends:' .. s.name, s.token)
  end
  if not s.expires then return end
  redis.call('PEXPIRE', s.key, KEPT_MS)
  if s.holders > 0 then redis.call('PEXPIRE', call.prefix .. 'semends:' .. s.name, KEPT_MS) end
  if s.gone > 0 then redis.call('PEXPIRE', call.prefix .. 'semended:' .. s.name, KEPT_MS) end
  if s.waiting == 0 then return end
  redis.call('PEXPIRE', call.prefix .. 'semline:' .. s.name, KEPT_MS)
  redis.call('PEXPIRE', call.prefix .. 'sempatience:' .. s.name, KEPT_MS)
end

-- semaphore_oldest returns for how long the first in line has waited.
local function semaphore_oldest(s, now)
  if s.waiting == 0 then return 0 end
  local first = redis.call('ZRANGE', call.prefix .. 'semline:' .. s.name, 0, 0)[1]
  return now - select(2, struct_unpack(PLACE, redis.call('HGET', s.key, first)))
end

function scripts.semaphore(KEYS, ARGV)
  local STATE, NOW, WHAT, NAME, TOKEN, LEASE = KEYS[1], ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5]
  local VERSION, PERMITS, MAX, QUEUE, RECORD, ELSEWHERE = ARGV[6], ARGV[7], ARGV[8], ARGV[9], ARGV[10], ARGV[11]
  local time_us = now_us(NOW)
  clock_begin(time_us, { 'pv', WHAT == 'acquire' and 'sems' or nil })
  local version = state_get('pv') or '0'
  if WHAT == 'acquire' and version ~= VERSION then return { 'stale' } end
  if RECORD then
    local tenant = match(NAME, '^[^:]*')
    local stored = not ELSEWHERE and redis.call('HGET', keys.records, tenant)
    if not ELSEWHERE and format('%d', stored and struct_unpack('>I7', stored) or 1) ~= RECORD then return { 'stale', version, tenant, stored or '' } end
    version = version .. ':' .. RECORD
  end
  local now = state_num('dc')
  local s = semaphore_open(NAME, TOKEN)
  if now >= s.due then semaphore_sweep(s, now) end

  local word, left, place, oldest = 'look', 0, 0, 0
  if WHAT == 'release' then
    word = semaphore_release(s, version)
    semaphore_close(s)
    state_write()
    return { word }
  elseif WHAT == 'acquire' then
    word, left, place = semaphore_acquire(s, now, version, PERMITS + 0, MAX + 0, LEASE + 0, QUEUE == '1')
    place = place or s.waiting
  elseif WHAT == 'extend' then
    word, left = semaphore_extend(s, now, LEASE + 0)
    place = s.waiting
  else
    oldest = semaphore_oldest(s, now)
  end
  if not left then left = s.held > 0 and math.max(0, semaphore_first(s, 'semends:') - now) or 0 end
  semaphore_close(s)
  state_write()
  return { word, struct_pack(REPLY, s.held, s.waiting, place, s.max, left, oldest, time_us) }
end
