-- @include group
-- @include entry
-- @include cancelled
-- @include return
-- surplus: entries for which no slot is left go back to their lanes.
-- entries_take takes entries out of a ready stream and returns their jobs' keys and records. An entry has a copy of a record that is
-- gone.
local function entries_take(pool, entries)
  local ids, job_keys = {}, {}
  for i, e in ipairs(entries) do
    ids[i], job_keys[i] = e[1], e[2][2]
  end
  redis.call('XACK', pool.key, GROUP, unpack(ids))
  redis.call('XDEL', pool.key, unpack(ids))
  call.refill_pools[pool.id] = true
  local records = redis.call('HMGET', keys.jobs, unpack(job_keys))
  for i, e in ipairs(entries) do
    if not records[i] then
      records[i] = e[2][4]
      redis.call('HSET', keys.jobs, job_keys[i], records[i])
    end
  end
  return job_keys, records
end

-- delivery_back puts a job back from a ready stream, unless it was cancelled there.
local function delivery_back(key, rec, now)
  if cancelled_take(key) then
    leave(key, 'cancelled', rec)
  else
    job_return(key, rec, now)
  end
end

-- surplus_return puts back what no slot is left for. Entries that nobody has read follow the group's last.
local function surplus_return(pool, now)
  local surplus = redis.call('XLEN', pool.key) - pool.slots
  if surplus <= 0 then return end
  local info = redis.call('XINFO', 'GROUPS', pool.key)[1]
  local last
  for i = 1, #info, 2 do
    if info[i] == 'last-delivered-id' then last = info[i + 1] end
  end
  local entries = redis.call('XREVRANGE', pool.key, '+', '(' .. last, 'COUNT', math.min(surplus, call.moves))
  if #entries == 0 then return end
  call.moves = call.moves - #entries
  local job_keys, records = entries_take(pool, entries)
  for i, key in ipairs(job_keys) do
    entry_release(pool.id, key, records[i])
    delivery_back(key, records[i], now)
  end
  if surplus > #entries and call.moves == 0 then moves_out('f' .. pool.id, now) end
end
