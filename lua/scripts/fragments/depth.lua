-- depth: the live jobs of a tenant in a queue, where these are bounded, HASH TENANT:QUEUE → jobs|bytes, and over all its
-- queues, TENANT: → jobs|bytes. Jobs say in their record that they count; the sum of them is `nl`. Dead letters and spilled jobs
-- do not count. Those counted by a release that had no TENANT: are in none. `old:TENANT:QUEUE` is a ZSET of the counted
-- jobs that wait in lanes, the lowest class first, then by arrival.
-- A bound is policy,jobs,bytes,spill,low: r reject, d drop oldest, s spill over, m spill over and move on to the second Redis (spill.lua);
-- 0 jobs or bytes for no bound; how many jobs may be spilled here; per cent of the bounds at which they come back; of m also how many there. Anything else is none; "-" is not said. `bounds`
-- (HASH, `nb` entries) has a tenant's own in a queue, TENANT:QUEUE, before the queue's, and *:* after it; and that of a
-- tenant over all its queues, TENANT, or * of every other. Where tiers differ, that of a queue, *:* and * are BOUND;TIER=BOUND…, the first
-- for the rest, and :TENANT is a tenant's tier, before which goes that of its record (weight.lua).
local CLASS_STEP = 35184372088832
function reset.depth() call.depths, call.bounds, call.depth_freed = {}, {}, {} end -- name → 'left', or 'goes on' where moves ran out -- luacheck: ignore 241 (only a fill uses it)

local function bound_read(text)
  local policy, most, bytes, spill, low, far = match(text or '', '^(%a),(%d+),(%d+),(%d+),(%d+),?(%d*)$')
  local b = policy and { policy = policy, jobs = tonumber(most), bytes = tonumber(bytes), spill = tonumber(spill),
    low = tonumber(low) / 100, far = tonumber(far) or 0 } or false
  if b and b.jobs == 0 then b.jobs = math.huge end
  if b and b.bytes == 0 then b.bytes = math.huge end
  return b
end

-- bound_of picks from a text that of a tenant's tier.
local function bound_of(tenant, text)
  local rest = text and string.find(text, ';', 1, true)
  if not rest then return text end
  local tier = recorded_tier(tenant) or state_num('nb') > 0 and redis.call('HGET', keys.bounds, ':' .. tenant)
  local name = ';' .. (tier or '') .. '='
  local at = tier and string.find(text, name, rest, true)
  return at and match(text, '^[^;]*', at + #name) or sub(text, 1, rest - 1)
end

local function bound_open(tenant, queue)
  local name = tenant .. ':' .. queue
  local b = call.bounds[name]
  if b == nil then
    local found = state_num('nb') > 0 and redis.call('HMGET', keys.bounds, name, '*:*', tenant, '*') or {}
    local own = queue_open(queue).overflow
    b = bound_read(bound_of(tenant, found[1] or own ~= '-' and own or found[2]))
    call.bounds[name], call.bounds[tenant] = b, bound_read(bound_of(tenant, found[3] or found[4]))
  end
  return b
end

-- total_bound returns what bounds a tenant over all its queues. bound_open has asked for it.
local function total_bound(tenant)
  return call.bounds[tenant]
end

local function depth_read(text)
  local count, bytes = match(text or '', '^(%d+)|(%d+)$')
  return { jobs = tonumber(count or 0), bytes = tonumber(bytes or 0) }
end

-- depth_open returns the depth of a name, and that of its tenant over all.
local function depth_open(name)
  local all = match(name, '^[^:]*:')
  if not call.depths[name] then
    local found = redis.call('HMGET', keys.depth, name, all)
    call.depths[name], call.depths[all] = depth_read(found[1]), call.depths[all] or depth_read(found[2])
  end
  return call.depths[name], call.depths[all]
end

local function depth_add(name, count, size)
  local d, all = depth_open(name)
  d.jobs, d.bytes, d.dirty = d.jobs + count, d.bytes + size, true
  all.jobs, all.bytes, all.dirty = math.max(0, all.jobs + count), math.max(0, all.bytes + size), true
  state_add('nl', count)
  if count < 0 then call.depth_freed[name] = call.depth_freed[name] or 'left' end
end

local function depth_name(key, rec)
  return match(key, '^[^:]*') .. ':' .. record_queue(rec)
end

-- job_size returns the bytes of a job as it is stored.
local function job_size(key, rec)
  return #rec + (record_has(rec, LARGE) and redis.call('STRLEN', call.prefix .. 'large:' .. key) or 0)
end

-- depth_leave takes a job out of the depth that it counts in.
local function depth_leave(key, rec)
  if record_has(rec, COUNTED) then depth_add(depth_name(key, rec), -1, -job_size(key, rec)) end
end

-- old_add and old_remove follow a counted job into and out of its lane.
local function old_add(key, rec)
  if not record_has(rec, COUNTED) then return end
  local score = (127 - byte(rec, 3)) * CLASS_STEP + number_at(rec, 7)
  redis.call('ZADD', call.prefix .. 'old:' .. depth_name(key, rec), format('%d', score), key)
end

local function old_remove(key, rec)
  if record_has(rec, COUNTED) then redis.call('ZREM', call.prefix .. 'old:' .. depth_name(key, rec), key) end
end

local function depth_write()
  if not next(call.depths) then return end
  local args, gone = {}, {}
  for name, d in pairs(call.depths) do
    if d.dirty and d.jobs > 0 then
      args[#args + 1], args[#args + 2] = name, format('%d|%d', d.jobs, d.bytes)
    elseif d.dirty then
      gone[#gone + 1] = name
    end
    d.dirty = false
  end
  if #args > 0 then redis.call('HSET', keys.depth, unpack(args)) end
  if #gone > 0 then redis.call('HDEL', keys.depth, unpack(gone)) end
end
