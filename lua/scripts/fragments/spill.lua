-- spill: jobs above the bound of their tenant in a queue wait in `spill:TENANT:QUEUE`, a ZSET by arrival, and come back in
-- that order once its depth is below the low-water mark; `spills` names those that hold some. A job with a deadline has
-- a timer x there. One whose body lies in the second Redis (far, below) waits for that first. One that starts later says so in its record while it is spilled (DELAYED), and `starts` has the time.
local DELAYED = 128

-- far: spilled jobs whose bodies lie in the second Redis (a bound's policy m). Their record here is a stub, of version STUB: header,
-- names and type. `far:TENANT:QUEUE` is a ZSET of them by arrival, all of which stand in `spill:TENANT:QUEUE` too; `nf` counts them.
-- A copy there is named "SEQ KEY". `copies` (SET) names those that do not count, or are on their way: to be dropped unless a job says
-- that it is its body. So each copy that counts has a stub, each that does not is in `copies`, and no crash leaves one that is in neither.
-- `recall` (SET) has the jobs whose deadline has passed: they come back to end. `mover` is UNTIL|NUMBER|OWNER of who moves them.
local STUB = 2
-- MOVER_SILENT is for how long nobody may have moved anything without being missed.
local MOVER_SILENT = 15000000

local function record_far(rec)
  return byte(rec, 1) == STUB
end

-- record_stub returns what stays of a record whose body is elsewhere: no time-out, no headers, no payload.
local function record_stub(rec)
  local queue_length, downstream_length = byte(rec, 35, 36)
  local at = QUEUE_AT + queue_length + downstream_length
  local low, high = byte(rec, at, at + 1)
  local size = low < 128 and 1 + low or 2 + low - 128 + 128 * high
  return char(STUB) .. sub(rec, 2, at + size - 1) .. '\0\0'
end

-- copy_name is the name of a copy. An id may have a zero byte, at which `%s` would end.
local function copy_name(key, rec)
  return format('%d ', number_at(rec, 7)) .. key
end

-- copy_job returns the job of a copy, if its record is of the same arrival.
local function copy_job(name)
  local seq, key = match(name, '^(%d+) (.*)$')
  local rec = redis.call('HGET', keys.jobs, key)
  if rec and number_at(rec, 7) == tonumber(seq) then return key, rec end
end

-- far_leave notes that a job's body counts no more where it lies: the job has left, or is back.
local function far_leave(name, key)
  local seq = redis.call('ZSCORE', call.prefix .. 'far:' .. name, key)
  if not seq then return end
  redis.call('ZREM', call.prefix .. 'far:' .. name, key)
  redis.call('SADD', keys.copies, format('%d ', score_of(seq)) .. key)
  redis.call('SREM', keys.recall, key)
  state_add('nf', -1)
end

local function far_count(name)
  return redis.call('ZCARD', call.prefix .. 'far:' .. name)
end

-- far_trouble says in a refusal why no more jobs go to the second Redis: 1 nobody moves them, 2 it is away or refuses them, 3 it has as
-- many of the tenant and queue as it may, 0 none of these.
local function far_trouble(full)
  if state_get('mbad') then return 2 end
  if math.abs(call.now - state_num('mok')) > MOVER_SILENT then return 1 end
  return full and 3 or 0
end

-- mover_is reports whether a mover's number is the last that was given out: what an earlier one still has on its way counts no more.
local function mover_is(number)
  return match(state_get('mover') or '', '^%d+|(%d+)|') == number
end

-- spill_leave reports whether the job was spilled.
local function spill_leave(name, key)
  if redis.call('ZREM', call.prefix .. 'spill:' .. name, key) == 0 then return false end
  if redis.call('EXISTS', call.prefix .. 'spill:' .. name) == 0 then redis.call('SREM', keys.spills, name) end
  return true
end

-- spill_remove is spill_leave, with what a spilled job has besides.
local function spill_remove(name, key, rec)
  if not spill_leave(name, key) then return false end
  if record_far(rec) then far_leave(name, key) end
  if record_has(rec, DELAYED) then redis.call('HDEL', keys.starts, key) end
  if byte(rec, 2) % 2 == 1 then redis.call('ZREM', keys.due, 'x' .. key) end
  return true
end

-- spill_gone is spill_remove of a job that has no record.
local function spill_gone(name, key)
  spill_leave(name, key)
  far_leave(name, key)
  redis.call('HDEL', keys.starts, key)
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
  rec = record_in(q, key, rec)
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
    if rec and record_far(rec) then return back end -- What brings its body back goes on.
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
      spill_gone(name, key)
      job_gone(key, queue)
    end
  end
end

-- spilled_look has jobs that are kept aside, of a tenant or of all, look whether they fit: what bounds them may have changed.
local function spilled_look(tenant, now)
  for _, name in ipairs(redis.call('SMEMBERS', keys.spills)) do
    if not tenant or match(name, '^[^:]*') == tenant then due_add(keys.due, now, 'o' .. name) end
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
