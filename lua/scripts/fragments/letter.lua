-- letter: dead letters stay in the jobs hash, stand in `dead`, in their queue's `dead:QUEUE` and in `letters:TENANT:QUEUE` by their
-- time, and `why` keeps their reason. ZSETs count them: `deadof` and `deadof:QUEUE` of each tenant, `deadin:TENANT` of each queue.
-- Letters of a release that did not count them are in none of these four.
-- `unique:TENANT:KEY` names the job that holds a unique key, `ukeys` the key that a job is to release.
local DEAD_CAP = 100000

local function unique_release(key)
  local name = redis.call('HGET', keys.ukeys, key)
  if not name then return end
  redis.call('HDEL', keys.ukeys, key)
  if redis.call('GET', call.prefix .. 'unique:' .. name) == key then redis.call('DEL', call.prefix .. 'unique:' .. name) end
end

-- suspect_forget forgets the group of a job that was lost with a worker (reclaim.lua).
local function suspect_forget(key, rec)
  if byte(rec, 6) > 0 then redis.call('HDEL', keys.suspects, key) end
end

-- leave ends a job with all that it owns.
local function leave(key, counter, rec)
  leave_plain(key, counter)
  suspect_forget(key, rec)
  depth_leave(key, rec)
  if record_has(rec, LARGE) then call.ended_keys[#call.ended_keys + 1] = call.prefix .. 'large:' .. key end
  if record_has(rec, HISTORY) then call.ended_keys[#call.ended_keys + 1] = call.prefix .. 'log:' .. key end
  if record_has(rec, UNIQUE_END) ~= record_has(rec, UNIQUE_START) then unique_release(key) end
end

-- old_gone takes a job whose record is gone out of the depth in which it has counted since it came into a lane of a queue.
local function old_gone(key, queue)
  local name = match(key, '^[^:]*') .. ':' .. queue
  if redis.call('ZREM', call.prefix .. 'old:' .. name, key) == 1 then
    local d = depth_open(name)
    depth_add(name, -1, -floor(d.bytes / math.max(1, d.jobs))) -- its size is not known
  end
end

-- job_gone counts a job that was met in its place, of a queue, and has no record: somebody, or a lost slot, has taken that away.
local function job_gone(key, queue)
  old_gone(key, queue)
  leave_plain(key, 'record_gone')
end

-- letter_count counts letters of a tenant in a queue.
local function letter_count(tenant, queue, n)
  for zset, member in pairs({ [keys.deadof] = tenant, [call.prefix .. 'deadof:' .. queue] = tenant, [call.prefix .. 'deadin:' .. tenant] = queue }) do
    if score_of(redis.call('ZINCRBY', zset, n, member)) <= 0 then redis.call('ZREM', zset, member) end
  end
end

-- letter_place puts a job among the dead.
local function letter_place(key, rec, at, why)
  local tenant, queue = match(key, '^[^:]*'), record_queue(rec)
  redis.call('ZADD', keys.dead, at, key)
  redis.call('ZADD', call.prefix .. 'dead:' .. queue, at, key)
  redis.call('ZADD', call.prefix .. 'letters:' .. tenant .. ':' .. queue, at, key)
  redis.call('HSET', keys.why, key, why)
  letter_count(tenant, queue, 1)
  return state_add('nd', 1)
end

-- letter_remove takes a dead letter out of its places, not out of the jobs hash. One without a record is looked for in all queues of
-- its tenant, unless its queue is named.
local function letter_remove(key, rec, named)
  local tenant = match(key, '^[^:]*')
  redis.call('HDEL', keys.why, key)
  state_add('nd', -redis.call('ZREM', keys.dead, key))
  local among = rec and { record_queue(rec) } or named and { named } or redis.call('ZRANGE', call.prefix .. 'deadin:' .. tenant, 0, -1)
  for _, queue in ipairs(among) do
    redis.call('ZREM', call.prefix .. 'dead:' .. queue, key)
    if redis.call('ZREM', call.prefix .. 'letters:' .. tenant .. ':' .. queue, key) == 1 then letter_count(tenant, queue, -1) end
  end
end

-- letter_end ends a dead letter for good and returns its queue, nil where nobody knows.
local function letter_end(key, counter, named)
  local rec = redis.call('HGET', keys.jobs, key)
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
  local oldest = redis.call('ZRANGE', keys.dead .. of, 0, 0)[1]
  local rec = redis.call('HGET', keys.jobs, oldest)
  local counted = rec and call.prefix .. 'letters:' .. match(oldest, '^[^:]*') .. ':' .. record_queue(rec)
  local most = redis.call('ZREVRANGE', call.prefix .. 'deadof' .. of, 0, 0, 'WITHSCORES')
  if counted and score_of(most[2]) > 1 and redis.call('ZSCORE', counted, oldest) then
    local own = score_of(redis.call('ZSCORE', call.prefix .. 'deadof' .. of, tenant))
    local who = own == score_of(most[2]) and tenant or most[1]
    local where = queue or redis.call('ZREVRANGE', call.prefix .. 'deadin:' .. who, 0, 0)[1]
    oldest = redis.call('ZRANGE', call.prefix .. 'letters:' .. who .. ':' .. where, 0, 0)[1]
  end
  letter_end(oldest, 'evicted', queue)
end

-- letters_arm sets the timer by which a queue's oldest dead letter goes, if they are kept for a time.
local function letters_arm(queue)
  local _, age = queue_bounds(queue_open(queue))
  local oldest = age > 0 and redis.call('ZRANGE', call.prefix .. 'dead:' .. queue, 0, 0, 'WITHSCORES')[2]
  if oldest then due_add(keys.due, score_of(oldest) + age, 'r' .. queue) end
end

-- dead_letter keeps a job among the dead. At most one other letter, of its queue or of all, goes out for it, so that the store
-- stays within its caps.
local function dead_letter(key, rec, reason, text, now)
  local tenant, queue = match(key, '^[^:]*'), record_queue(rec)
  local _, age, cap = queue_bounds(queue_open(queue))
  if record_has(rec, COUNTED) then
    depth_leave(key, rec)
    redis.call('HSET', keys.jobs, key, sub(rec, 1, 1) .. char(byte(rec, 2) - COUNTED) .. sub(rec, 3))
  end
  suspect_forget(key, rec)
  local all = letter_place(key, rec, format('%d', now), reason .. '|' .. text)
  state_add('dead:' .. reason, 1)
  if record_has(rec, UNIQUE_END) ~= record_has(rec, UNIQUE_START) then unique_release(key) end
  local count = redis.call('ZCARD', call.prefix .. 'dead:' .. queue)
  if age > 0 and count == 1 then
    due_add(keys.due, now + age, 'r' .. queue)
  elseif age > 0 and not redis.call('ZSCORE', keys.due, 'r' .. queue) then
    letters_arm(queue) -- Those before it came when letters were kept for ever.
  end
  if count > cap then
    letter_evict(tenant, queue)
  elseif all > DEAD_CAP then
    letter_evict(tenant)
  end
end

-- cancelled: jobs that were cancelled while a worker ran them, HASH job key → worker|token|reason. The worker hears of
-- it with its heartbeat; whatever becomes of the delivery, short of completion, then ends the job. `nc` counts them.

-- cancelled_take reports whether a job that leaves a ready stream was cancelled, and forgets it.
local function cancelled_take(key)
  if state_num('nc') == 0 or redis.call('HDEL', keys.cancelled, key) == 0 then return false end
  state_add('nc', -1)
  return true
end
