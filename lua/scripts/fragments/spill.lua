-- spill: jobs above the bound of their tenant in a queue wait in `spill:TENANT:QUEUE`, a ZSET by arrival, and come back in
-- that order once its depth is below the low-water mark; `spills` names those that hold some. A job with a deadline has
-- a timer x there. One that starts later says so in its record while it is spilled (DELAYED), and `starts` has the time.
local DELAYED = 128

-- spill_leave reports whether the job was spilled.
local function spill_leave(name, key)
  if redis.call('ZREM', call.prefix .. 'spill:' .. name, key) == 0 then return false end
  if redis.call('EXISTS', call.prefix .. 'spill:' .. name) == 0 then redis.call('SREM', keys.spills, name) end
  return true
end

-- spill_remove is spill_leave, with what a spilled job has besides.
local function spill_remove(name, key, rec)
  if not spill_leave(name, key) then return false end
  if record_has(rec, DELAYED) then redis.call('HDEL', keys.starts, key) end
  if byte(rec, 2) % 2 == 1 then redis.call('ZREM', keys.due, 'x' .. key) end
  return true
end

-- spill_back brings one job back, if it has begun to wait, and reports whether that was into a lane.
local function spill_back(name, key, rec, size, now)
  local tenant, queue = match(name, '^([^:]*):(.*)$')
  local q, start = queue_open(queue), record_has(rec, DELAYED) and tonumber(redis.call('HGET', keys.starts, key))
  spill_remove(name, key, rec)
  if start then rec = sub(rec, 1, 1) .. char(byte(rec, 2) - DELAYED) .. sub(rec, 3) end
  if byte(rec, 2) % 2 == 1 and number_at(rec, 15) < now then
    job_expire(q, key, rec, now)
    return false
  end
  rec = record_flagged(rec, COUNTED)
  redis.call('HSET', keys.jobs, key, rec)
  depth_add(name, 1, size)
  if start and start > now then
    due_add(keys.later, start, key)
    return false
  end
  old_add(key, rec)
  lane_place(class_open(q, byte(rec, 3) + 1), tenant, record_lane(rec), number_at(rec, 15), sub(rec, 7, 14)
    .. sub(rec, COST_AT, COST_AT + 3) .. match(key, ':(.*)$'))
  call.refill[queue] = true
  return true
end

-- spill_drain brings jobs of one name back while they fit, those that start later into `later`. It reports whether one
-- came back into a lane. What has begun below the low-water mark goes on above it.
local function spill_drain(name, goes_on, now)
  local tenant, queue = match(name, '^([^:]*):(.*)$')
  local b, d, back = bound_open(tenant, queue), depth_open(name), false
  if not goes_on and b and (d.jobs > b.jobs * b.low or d.bytes > b.bytes * b.low) then return false end
  while true do
    local key = redis.call('ZRANGE', call.prefix .. 'spill:' .. name, 0, 0)[1]
    if not key then return back end
    local rec = redis.call('HGET', keys.jobs, key)
    local size = rec and job_size(key, rec) or 0
    if b and d.jobs > 0 and (d.jobs + 1 > b.jobs or d.bytes + size > b.bytes) then return back end
    if call.moves == 0 then
      moves_out('o' .. name, now)
      return back
    end
    call.moves = call.moves - 1
    if rec then
      back = spill_back(name, key, rec, size, now) or back
    else
      spill_leave(name, key)
      redis.call('HDEL', keys.starts, key)
      job_gone(key, queue)
    end
  end
end

-- spill_return brings back what has room, and reports whether that makes a fill necessary.
local function spill_return(now)
  if not next(call.depth_freed) then return false end
  local freed_by, back = call.depth_freed, false
  call.depth_freed = {}
  for _, name in ipairs(names_sorted(freed_by)) do
    if redis.call('EXISTS', call.prefix .. 'spill:' .. name) == 1 then back = spill_drain(name, freed_by[name] == 'goes on', now) or back end
  end
  return back
end
