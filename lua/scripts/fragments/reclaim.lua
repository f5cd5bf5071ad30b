-- worker: registrations.
--   workers HASH worker → pool|slots|lease, which is 0 while it is taken back, once it has ended: no heartbeat brings it back

local function worker_read(worker)
  local v = redis.call('HGET', keys.workers, worker)
  if not v then return nil end
  local pool, slots, lease = match(v, '^([^|]*)|(%d+)|(%d+)$')
  return { pool = pool, slots = tonumber(slots), lease = tonumber(lease) }
end

-- reclaim: entries of a worker whose lease ended go back to their lanes.
-- The deliveries that end with one lease make their jobs suspects, and one group: `suspects` maps each job to its group, none
-- where it is alone. The handlers of one worker run suspects of one group together, and one that is alone beside no other
-- (start.lua). So when such a worker is lost too, those that it had begun are bisected: its halves never run together
-- again, and a job that kills its workers is alone after as many deaths as its neighbours can be halved.

-- group_part gives members a group, from one place of them to another.
local function group_part(members, from, to, group)
  for i = from, to do
    if from == to then
      redis.call('HDEL', keys.suspects, members[i])
    else
      redis.call('HSET', keys.suspects, members[i], group)
    end
  end
end

-- suspects_part says which of the jobs that a worker has taken along count it against themselves: those that it had begun alone.
-- It bisects those that it had begun together, and makes a group of those that were no suspects.
local function suspects_part(worker, jobs)
  local fresh, together = {}, {}
  for _, job in ipairs(jobs) do
    if byte(job.rec, 6) == 0 then
      fresh[#fresh + 1] = job.key
    elseif job.begun and redis.call('HEXISTS', keys.suspects, job.key) == 1 then
      together[#together + 1] = job.key
    else
      job.counts = job.begun
    end
  end
  local half = math.ceil(#together / 2)
  group_part(together, 1, half, worker .. '/0')
  group_part(together, half + 1, #together, worker .. '/1')
  group_part(fresh, 1, #fresh, worker)
end

-- delivery_lost takes back a delivery that ended with its worker's lease. As many that count as the queue's poison limit make a
-- dead letter. The job comes back after a time: SUSPECT_BASE / 2 to SUSPECT_BASE, doubled with each that counts.
local SUSPECT_BASE = 500000
local function delivery_lost(worker, job, now)
  local key, rec = job.key, job.rec
  local r = record_read(rec)
  local suspicion = math.max(1, r.suspicion + (job.counts and 1 or 0))
  local lost = suspicion - 1
  rec = history_add(key, record_recount(rec, r.attempts, suspicion), 'lost', 0, worker, '', now)
  redis.call('HSET', keys.jobs, key, rec)
  local q = queue_open(r.queue)
  if lost >= queue_bounds(q) then
    return dead_letter(key, rec, 'poison', format('%d workers were lost that ran it', lost), now)
  end
  local seq = number_at(rec, 7)
  local delay = (SUSPECT_BASE + seq * 104729 % SUSPECT_BASE) / 2 * 2 ^ math.min(lost, 6)
  local at = floor(now + delay)
  if r.flags % 2 == 1 and at > r.score then
    job_expire(q, key, rec, now)
  else
    due_add(keys.later, at, key)
  end
end

-- consumer_return takes a consumer's entries, as many as there are moves, and reports whether none are left. They are
-- lost unless the worker itself hands them back. It reads them as a worker would again: the list of XPENDING is by their ages, and the
-- store inside the process leaves out whatever its clock, set back, takes for younger than nothing.
local function consumer_return(pool, consumer, lost, now)
  if call.moves == 0 then return false end
  local history = redis.call('XREADGROUP', 'GROUP', GROUP, consumer, 'COUNT', call.moves, 'STREAMS', pool.key, '0')
  local read, entries = history and history[1][2] or {}, {}
  for _, e in ipairs(read) do
    if e[2] then
      entries[#entries + 1] = e
    else
      redis.call('XACK', pool.key, GROUP, e[1]) -- Somebody has deleted it.
    end
  end
  local out = #read < call.moves
  if #entries > 0 then
    call.moves = call.moves - #entries
    local job_keys, records = entries_take(pool, entries)
    local suspects = {}
    for i, key in ipairs(job_keys) do
      local begun = lost and byte(records[i], 6) > 0 and redis.call('HGET', keys.started, key) == consumer
      entry_release(pool.id, key, records[i])
      if not lost then
        delivery_back(key, records[i], now)
      elseif cancelled_take(key) then
        leave(key, 'cancelled', records[i])
      else
        suspects[#suspects + 1] = { key = key, rec = records[i], begun = begun }
      end
    end
    suspects_part(consumer, suspects)
    for _, job in ipairs(suspects) do delivery_lost(consumer, job, now) end
  end
  return out
end

-- consumer_end ends a consumer that holds nothing. What it held all the same is nobody's then, and is told: `stranded`.
local function consumer_end(pool, consumer)
  local held = redis.call('XGROUP', 'DELCONSUMER', pool.key, GROUP, consumer)
  if held > 0 then state_add('stranded', held) end
end

local function pool_unlist(field, gone)
  local left = {}
  for id in string.gmatch(state_get(field) or '', '%S+') do
    if id ~= gone then left[#left + 1] = id end
  end
  state_set(field, #left > 0 and table.concat(left, ' ') or false)
end

-- entry_id_parts returns milliseconds and number of the id of an entry.
local function entry_id_parts(id)
  local ms, n = match(id, '^(%d+)%-(%d+)$')
  return tonumber(ms), tonumber(n)
end

-- entry_ids_keep notes the last id of a ready stream that goes, and entry_ids_go_on has a new one begin behind all that were: an id is a lease's
-- token, and a stream that is made anew in the same millisecond, or by a clock that has stepped back, would give it to another job.
local function entry_ids_keep(ready)
  local info = redis.call('XINFO', 'STREAM', ready)
  for i = 1, #info, 2 do
    if info[i] == 'last-generated-id' then
      local ms, n = entry_id_parts(info[i + 1])
      local most_ms, most = entry_id_parts(state_get('lt') or '0-0')
      if ms > most_ms or ms == most_ms and n > most then state_set('lt', info[i + 1]) end
    end
  end
end

local function entry_ids_go_on(ready)
  local ms, n = match(state_get('lt') or '', '^(%d+)%-(%d+)$')
  if not ms then return end
  local id = format('%s-%d', ms, n + 1)
  redis.call('XADD', ready, id, 'j', '')
  redis.call('XDEL', ready, id)
end

-- pool_close forgets a pool without workers and without entries.
local function pool_close(pool)
  if pool.slots > 0 or redis.call('XLEN', pool.key) > 0 then return end
  entry_ids_keep(pool.key)
  redis.call('UNLINK', pool.key)
  redis.call('ZREM', keys.due, 'c' .. pool.id)
  pool_unlist('pools', pool.id)
  for _, queue in ipairs(pool.queues) do pool_unlist('pools:' .. queue, pool.id) end
  state_set('pool:' .. pool.id, false)
  pool.touched = false
  call.pools[pool.id] = false
end

-- worker_reclaim takes back what a worker holds; its slots and its consumer go with the last entry. It reports
-- whether that is done.
local function worker_reclaim(worker, lost, now)
  local w = worker_read(worker)
  if not w then return true end
  local pool = pool_open(w.pool)
  if not pool then -- Others of the pool have drained with it, and whoever was first has closed it: it had no entries.
    redis.call('HDEL', keys.workers, worker)
    redis.call('ZREM', keys.due, 'w' .. worker)
    return true
  end
  if not consumer_return(pool, worker, lost, now) then
    if lost then redis.call('HSET', keys.workers, worker, format('%s|%d|0', w.pool, w.slots)) end
    return false
  end
  consumer_end(pool, worker)
  redis.call('HDEL', keys.workers, worker)
  redis.call('ZREM', keys.due, 'w' .. worker)
  pool.slots = math.max(0, pool.slots - w.slots)
  pool.touched = true
  surplus_return(pool, now)
  pool_close(pool)
  return true
end

-- consumers: those of a pool's group are compared with the registrations.
local AUDIT_EVERY = 15000000

-- consumers_audit takes back what a consumer holds that is not registered: a read that was on its way when its
-- worker's lease ended makes the consumer anew.
local function consumers_audit(id, now)
  local pool = pool_open(id)
  if not pool then return end
  for _, info in ipairs(redis.call('XINFO', 'CONSUMERS', pool.key, GROUP)) do
    local name, pending
    for i = 1, #info, 2 do
      if info[i] == 'name' then name = info[i + 1] elseif info[i] == 'pending' then pending = info[i + 1] end
    end
    if redis.call('HEXISTS', keys.workers, name) == 0 then
      if pending > 0 and not consumer_return(pool, name, true, now) then
        return due_add(keys.due, now, 'c' .. id)
      end
      consumer_end(pool, name)
    end
  end
  pool_close(pool)
  if call.pools[id] then due_add(keys.due, now + AUDIT_EVERY, 'c' .. id) end
end
