-- @include leave
-- @include header
-- @include queue
-- @include due
-- @include depth
-- letter: dead letters stay in the jobs hash, stand in `dead` and in their queue's `dead:QUEUE` by their time, and `why`
-- keeps their reason. `unique:TENANT:KEY` names the job that holds a unique key, `ukeys` the key that a job is to release.
local DEAD, WHY, UKEYS = P .. 'dead', P .. 'why', P .. 'ukeys'
local DEAD_CAP = 100000

local function unique_release(key)
  local name = redis.call('HGET', UKEYS, key)
  if not name then return end
  redis.call('HDEL', UKEYS, key)
  if redis.call('GET', P .. 'unique:' .. name) == key then redis.call('DEL', P .. 'unique:' .. name) end
end

-- leave ends a job with all that it owns.
local function leave(key, counter, rec)
  leave_plain(key, counter)
  depth_leave(key, rec)
  if record_has(rec, LARGE) then ended_keys[#ended_keys + 1] = P .. 'large:' .. key end
  if record_has(rec, HISTORY) then ended_keys[#ended_keys + 1] = P .. 'log:' .. key end
  if record_has(rec, UNIQUE_END) ~= record_has(rec, UNIQUE_START) then unique_release(key) end
end

-- letter_remove takes a dead letter out of its places, not out of the jobs hash.
local function letter_remove(key, rec)
  redis.call('ZREM', DEAD, key)
  redis.call('ZREM', P .. 'dead:' .. record_queue(rec), key)
  redis.call('HDEL', WHY, key)
  state_add('nd', -1)
end

local function letter_purge(key)
  local rec = redis.call('HGET', JOBS, key)
  letter_remove(key, rec)
  leave(key, 'purged', rec)
end

-- dead_letter keeps a job among the dead. At most one older letter of its queue, or of all, goes out for it, so the
-- store stays within its caps.
local function dead_letter(key, rec, reason, text, now)
  local queue = record_queue(rec)
  local letters = P .. 'dead:' .. queue
  local _, age, cap = queue_bounds(queue_open(queue))
  if record_has(rec, COUNTED) then
    depth_leave(key, rec)
    redis.call('HSET', JOBS, key, sub(rec, 1, 1) .. char(byte(rec, 2) - COUNTED) .. sub(rec, 3))
  end
  redis.call('ZADD', DEAD, format('%d', now), key)
  redis.call('ZADD', letters, format('%d', now), key)
  redis.call('HSET', WHY, key, reason .. '|' .. text)
  state_add('dead:' .. reason, 1)
  if record_has(rec, UNIQUE_END) ~= record_has(rec, UNIQUE_START) then unique_release(key) end
  local count, all = redis.call('ZCARD', letters), state_add('nd', 1)
  if age > 0 and count == 1 then due_add(DUE, now + age, 'r' .. queue) end
  if count > cap then
    letter_purge(redis.call('ZRANGE', letters, 0, 0)[1])
  elseif all > DEAD_CAP then
    letter_purge(redis.call('ZRANGE', DEAD, 0, 0)[1])
  end
end
