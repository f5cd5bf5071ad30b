-- @include jobs
-- @include header
-- @include queue
-- @include score
-- depth: the live jobs of a tenant in a queue, where these are bounded, HASH TENANT:QUEUE → jobs|bytes. Jobs say in their
-- record that they count; the sum of them is `nl`. Dead letters and spilled jobs do not count. `old:TENANT:QUEUE` is
-- a ZSET of the counted jobs that wait in lanes, the lowest class first, then by arrival.
-- A bound is policy,jobs,bytes,spill,low: r reject, d drop oldest, s spill over; 0 jobs or bytes for no bound; how many
-- jobs may be spilled; per cent of the bounds at which they come back. "-" is none. It is the queue's, unless `bounds`
-- (HASH, `nb` entries) has one for TENANT:QUEUE.
local DEPTH, BOUNDS, CLASS_STEP = P .. 'depth', P .. 'bounds', 35184372088832
local depths, bounds = {}, {}
local depth_freed = {} -- name → 'left', or 'goes on' where moves ran out -- luacheck: ignore 241 (only a fill uses it)

local function bound_open(tenant, queue)
  local name = tenant .. ':' .. queue
  local b = bounds[name]
  if b == nil then
    local text = state_num('nb') > 0 and redis.call('HGET', BOUNDS, name) or queue_open(queue).overflow
    local policy, most, bytes, spill, low = match(text, '^(%a),(%d+),(%d+),(%d+),(%d+)$')
    b = policy and { policy = policy, jobs = tonumber(most), bytes = tonumber(bytes), spill = tonumber(spill),
      low = tonumber(low) / 100 } or false
    if b and b.jobs == 0 then b.jobs = math.huge end
    if b and b.bytes == 0 then b.bytes = math.huge end
    bounds[name] = b
  end
  return b
end

local function depth_open(name)
  local d = depths[name]
  if not d then
    local count, bytes = match(redis.call('HGET', DEPTH, name) or '', '^(%d+)|(%d+)$')
    d = { jobs = tonumber(count or 0), bytes = tonumber(bytes or 0) }
    depths[name] = d
  end
  return d
end

local function depth_add(name, count, size)
  local d = depth_open(name)
  d.jobs, d.bytes, d.dirty = d.jobs + count, d.bytes + size, true
  state_add('nl', count)
  if count < 0 then depth_freed[name] = depth_freed[name] or 'left' end
end

local function depth_name(key, rec)
  return match(key, '^[^:]*') .. ':' .. record_queue(rec)
end

-- job_size returns the bytes of a job as it is stored.
local function job_size(key, rec)
  return #rec + (record_has(rec, LARGE) and redis.call('STRLEN', P .. 'large:' .. key) or 0)
end

-- depth_leave takes a job out of the depth that it counts in.
local function depth_leave(key, rec)
  if record_has(rec, COUNTED) then depth_add(depth_name(key, rec), -1, -job_size(key, rec)) end
end

-- old_add and old_remove follow a counted job into and out of its lane.
local function old_add(key, rec)
  if not record_has(rec, COUNTED) then return end
  local score = (127 - byte(rec, 3)) * CLASS_STEP + number_at(rec, 7)
  redis.call('ZADD', P .. 'old:' .. depth_name(key, rec), format('%d', score), key)
end

local function old_remove(key, rec)
  if record_has(rec, COUNTED) then redis.call('ZREM', P .. 'old:' .. depth_name(key, rec), key) end
end

local function depth_write()
  for name, d in pairs(depths) do
    if d.dirty and d.jobs > 0 then
      redis.call('HSET', DEPTH, name, format('%d|%d', d.jobs, d.bytes))
    elseif d.dirty then
      redis.call('HDEL', DEPTH, name)
    end
    d.dirty = false
  end
end
