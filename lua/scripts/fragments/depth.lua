-- depth: the live jobs of a tenant in a queue, where these are bounded, HASH TENANT:QUEUE → jobs|bytes, and over all its
-- queues, TENANT: → jobs|bytes. Jobs say in their record that they count; the sum of them is `nl`. Dead letters and spilled jobs
-- do not count. Those counted by a release that had no TENANT: are in none. `old:TENANT:QUEUE` is a ZSET of the counted
-- jobs that wait in lanes, the lowest class first, then by arrival.
-- A bound is policy,jobs,bytes,spill,low: r reject, d drop oldest, s spill over, m spill over and move on to the second Redis (spill.lua);
-- 0 jobs or bytes for no bound; how many jobs may be spilled here; per cent of the bounds at which they come back; of m also how many there. Anything else is none; "-" is not said. `bounds`
-- (HASH, `nb` entries) has a tenant's own in a queue, TENANT:QUEUE, before the queue's, and *:* after it; and that of a
-- tenant over all its queues, TENANT, or * of every other. Where tiers differ, that of a queue, *:* and * are BOUND;TIER=BOUND…, the first
-- for the rest, and :TENANT is a tenant's tier, before which goes that of its record (weight.lua).
-- A record may have bounds, which go before the policy's own of its tenant: {"overflow":{…}} over all its queues, and {"queues":{"QUEUE":{"overflow":{…}}}},
-- as a policy writes them. `ro` counts records that have any; while there are some, `nb` is higher by RECORDED (weight.lua), so that nobody asks for records
-- where none says something.
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

local POLICIES = { reject = 'r', drop_oldest = 'd', spillover = 's' }

-- bound_said returns a bound as JSON has it: false for none, nil where nothing is said.
local function bound_said(o)
  if type(o) ~= 'table' or not o.policy then return nil end
  local far = tonumber(o.max_moved) or 0
  return bound_read(format('%s,%d,%d,%d,%d,%d', far > 0 and 'm' or POLICIES[o.policy] or 'none', tonumber(o.max_jobs) or 0, tonumber(o.max_bytes) or 0,
    tonumber(o.max_spilled) or 0, tonumber(o.low_water_percent) or 0, far))
end

local function bounds_parse(text)
  local ok, said = pcall(cjson.decode, text)
  if not ok or type(said) ~= 'table' then return {} end
  local of = { [''] = bound_said(said.overflow) }
  for queue, each in pairs(type(said.queues) == 'table' and said.queues or {}) do
    if type(each) == 'table' then of[queue] = bound_said(each.overflow) end
  end
  return of
end
local RECORD_BOUNDS = memory(bounds_parse)

-- record_bounds returns the bounds that the JSON of a record has: by queue, under '' that over all, false for one that is lifted; nil for none.
local function record_bounds(text)
  if not string.find(text, '"overflow":{', 1, true) then return nil end
  local of = remembered(RECORD_BOUNDS, text)
  return next(of) ~= nil and of or nil
end

-- record_bounded counts a record that took the place of another, both by their JSON, empty for none, and reports whether it has bounds, or lifts some, at other
-- places than that: then jobs that entered before are to be counted (recount.lua).
local function record_bounded(before, after)
  local was, is = record_bounds(before), record_bounds(after)
  if (not was) ~= (not is) then
    local n = state_num('ro') + (is and 1 or -1)
    state_set('ro', n > 0 and n)
    state_set('nb', state_num('nb') % RECORDED + (n > 0 and RECORDED or 0))
  end
  was, is = was or {}, is or {}
  for name, b in pairs(is) do
    if was[name] == nil or not was[name] ~= not b then return true end
  end
  for name in pairs(was) do
    if is[name] == nil then return true end
  end
  return false
end

-- bound_of picks from a text that of a tenant's tier.
local function bound_of(tenant, text)
  local rest = text and string.find(text, ';', 1, true)
  if not rest then return text end
  local tier = recorded_tier(tenant) or state_num('nb') % RECORDED > 0 and redis.call('HGET', keys.bounds, ':' .. tenant)
  local name = ';' .. (tier or '') .. '='
  local at = tier and string.find(text, name, rest, true)
  return at and match(text, '^[^;]*', at + #name) or sub(text, 1, rest - 1)
end

local function bound_open(tenant, queue)
  local name = tenant .. ':' .. queue
  local b = call.bounds[name]
  if b == nil then
    local of = state_num('nb')
    local stored = of >= RECORDED and records_read({ tenant })[tenant]
    local said = stored and record_bounds(sub(stored, 8)) or {}
    local found = of % RECORDED > 0 and redis.call('HMGET', keys.bounds, name, '*:*', tenant, '*') or {}
    local own, most = queue_open(queue).overflow, said['']
    b = said[queue]
    if b == nil then b = bound_read(bound_of(tenant, found[1] or own ~= '-' and own or found[2])) end
    if most == nil then most = bound_read(bound_of(tenant, found[3] or found[4])) end
    call.bounds[name], call.bounds[tenant] = b, most
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

-- large_size returns the bytes of a job's payload where that has a key of its own, by the flags of its record.
local function large_size(key, flags)
  return has_flag(flags, LARGE) and redis.call('STRLEN', call.prefix .. 'large:' .. key) or 0
end

-- job_size returns the bytes of a job as it is stored.
local function job_size(key, rec)
  return #rec + large_size(key, byte(rec, 2))
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
