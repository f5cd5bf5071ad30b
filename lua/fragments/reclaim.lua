-- @include group
-- @include entry
-- @include worker
-- @include recount
-- @include return
-- reclaim: entries go back to their lanes, those of a worker whose lease ended, those for which no slot is left.
-- entries_return takes entries out of a ready stream and puts their jobs back. A lost delivery is counted.
local function entries_return(pool, entries, lost, now)
  local ids, keys = {}, {}
  for i, e in ipairs(entries) do
    ids[i], keys[i] = e[1], e[2][2]
  end
  redis.call('XACK', pool.key, GROUP, unpack(ids))
  redis.call('XDEL', pool.key, unpack(ids))
  local records = redis.call('HMGET', JOBS, unpack(keys))
  for i, rec in ipairs(records) do
    entry_release(keys[i], rec)
    if lost then
      local r = record_read(rec)
      rec = record_recount(rec, r.attempts, math.min(255, r.lost + 1))
      redis.call('HSET', JOBS, keys[i], rec)
    end
    job_return(keys[i], rec, now)
  end
  refill_pools[pool.id] = true
end

-- surplus_return puts back what no slot is left for. Entries that nobody has read follow the group's last.
local function surplus_return(pool, now)
  local surplus = redis.call('XLEN', pool.key) - pool.slots
  if surplus <= 0 or moves == 0 then return end
  local info = redis.call('XINFO', 'GROUPS', pool.key)[1]
  local last
  for i = 1, #info, 2 do
    if info[i] == 'last-delivered-id' then last = info[i + 1] end
  end
  local entries = redis.call('XREVRANGE', pool.key, '+', '(' .. last, 'COUNT', math.min(surplus, moves))
  if #entries == 0 then return end
  moves = moves - #entries
  entries_return(pool, entries, false, now)
  if surplus > #entries and moves == 0 then moves_out('f' .. pool.id, now) end
end

-- consumer_return takes a consumer's entries, as many as there are moves, and reports whether none are left.
local function consumer_return(pool, consumer, now)
  if moves == 0 then return false end
  local pending = redis.call('XPENDING', pool.key, GROUP, '-', '+', moves, consumer)
  local entries = {}
  for i, p in ipairs(pending) do
    entries[i] = redis.call('XRANGE', pool.key, p[1], p[1])[1]
  end
  local out = #pending < moves
  if #entries > 0 then
    moves = moves - #entries
    entries_return(pool, entries, true, now)
  end
  return out
end

local function pool_unlist(field, gone)
  local left = {}
  for id in string.gmatch(state_get(field) or '', '%S+') do
    if id ~= gone then left[#left + 1] = id end
  end
  state_set(field, #left > 0 and table.concat(left, ' ') or false)
end

-- pool_close forgets a pool without workers and without entries.
local function pool_close(pool)
  if pool.slots > 0 or redis.call('XLEN', pool.key) > 0 then return end
  redis.call('UNLINK', pool.key)
  redis.call('ZREM', DUE, 'c' .. pool.id)
  pool_unlist('pools', pool.id)
  for _, queue in ipairs(pool.queues) do pool_unlist('pools:' .. queue, pool.id) end
  state_set('pool:' .. pool.id, false)
  pool.touched = false
  pools[pool.id] = false
end

-- worker_reclaim takes back what a worker holds; its slots and its consumer go with the last entry. It reports
-- whether that is done.
local function worker_reclaim(worker, now)
  local w = worker_read(worker)
  if not w then return true end
  local pool = pool_open(w.pool)
  if not consumer_return(pool, worker, now) then return false end
  redis.call('XGROUP', 'DELCONSUMER', pool.key, GROUP, worker)
  redis.call('HDEL', WORKERS, worker)
  redis.call('ZREM', DUE, 'w' .. worker)
  pool.slots = math.max(0, pool.slots - w.slots)
  pool.touched = true
  surplus_return(pool, now)
  pool_close(pool)
  return true
end
