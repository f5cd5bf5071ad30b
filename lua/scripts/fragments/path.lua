-- path: the buckets on the way of a job, global, tenant, queue and priority, for scripts that charge them all or none.
-- A script sets path_count, paths_at, bucket_cap, global_rate, global_burst, what the keys of tenants' buckets begin with
-- (buckets), and the field of the state that has the global one (global_bucket). At paths_at stand the number of distinct
-- limits; each, of tenant, queue and priority, rate and burst, doubles of 8 bytes, the lowest first, where a rate of 0 is no bucket;
-- then of each path tenant, queue, class from 0, its name, and its limits from 1. A class as CLASS:FROM is of a queue that is measured:
-- from the level FROM on its jobs are refused (admit).
local PATH_SIZE = 5
-- the buckets' own time, which never goes back
function reset.path() call.filled_to, call.paths, call.charged, call.measured = nil, {}, {}, false end

-- path_bucket notes a bucket, false for no rate. Those of one tenant are read together.
local function path_bucket(t, field, rate, burst)
  if not rate then return false end
  local list = t.list
  for i = 1, #list do
    if list[i].field == field then return list[i] end
  end
  local b = { field = field, owner = t, rate = rate, burst = burst, level = 0, stamp = 0, absent = false, dirty = false }
  list[#list + 1], t.fields[#list + 2] = b, field
  return b
end

local function limits_unpack(text)
  local l = { struct.unpack('<dddddd', text) }
  for level = 1, 5, 2 do l[level] = l[level] > 0 and l[level] end
  return l
end
local LIMITS = memory(limits_unpack)

-- paths_read notes the paths and returns where what follows them begins.
local function paths_read()
  local limits, at = {}, call.paths_at + 1
  for i = 1, tonumber(call.argv[call.paths_at]) do
    limits[i], at = remembered(LIMITS, call.argv[at]), at + 1
  end
  for i = 1, call.path_count do
    local tenant, queue, l = call.argv[at], call.argv[at + 1], limits[tonumber(call.argv[at + 4])]
    local class, from = tonumber(call.argv[at + 2]), nil
    if not class then
      class, from = match(call.argv[at + 2], '^(%d+):(%d)$')
      call.measured = true
    end
    local t = call.charged[tenant]
    if not t then
      t = { key = call.prefix .. call.buckets .. tenant, fields = { '!', false, false, false }, list = {}, expires = 0, count = false }
      call.charged[tenant] = t
    end
    call.paths[i] = { path_bucket(t, '', l[1], l[2]), path_bucket(t, queue, l[3], l[4]),
      l[5] and path_bucket(t, queue .. ':' .. call.argv[at + 3], l[5], l[6]),
      [0] = false, tenant = tenant, queue = queue, class = class + 1, from = tonumber(from) }
    at = at + PATH_SIZE
  end
  return at
end

-- buckets_read needs `gm` and GLOBAL_BUCKET loaded.
local function buckets_read()
  call.filled_to = state_num('bt')
  local changed_at = state_num('pat')
  for _, t in pairs(call.charged) do
    if t.list[1] then
      local values = redis.call('HMGET', t.key, unpack(t.fields, 1, #t.list + 1))
      t.expires = tonumber(values[1] or 0)
      for i, b in ipairs(t.list) do
        local stored = values[i + 1]
        b.absent = not stored
        bucket_settle(b, stored, changed_at, call.filled_to)
      end
    end
  end
  if call.global_rate then
    local rate = call.global_rate * (state_get('gm') or 1) -- fragment share has the multiple
    local b = bucket_settle({ rate = rate, burst = call.global_burst }, state_get(call.global_bucket), changed_at, call.filled_to)
    for i = 1, call.path_count do call.paths[i][0] = b end
  end
end

-- room_for reports whether the tenant may have one more bucket; full ones make room.
local function room_for(b)
  local t = b.owner
  if not t then return true end
  t.count = t.count or redis.call('HLEN', t.key)
  return t.count < call.bucket_cap
end

-- refusal_of returns the refusal of a path that does not hold the cost, nil where it does.
local function refusal_of(path, cost)
  local worst, wait_most, burst
  for level = 0, 3 do
    local b = path[level]
    if b and b.burst < cost then return format('costly %d %d', level, b.burst) end
  end
  for level = 0, 3 do
    local b = path[level]
    if b and b.level < cost then
      local wait = bucket_wait(b, cost, call.filled_to)
      if not worst or wait > wait_most then worst, wait_most, burst = level, wait, b.burst end
    elseif b and b.absent and not b.dirty and not room_for(b) then
      return format('buckets %d', level)
    end
  end
  if worst then return format('limited %d %d %d %d', worst, path[worst].level, wait_most, burst) end
end

-- pressure_of returns the level of a queue that is measured, and level, score and hint as callers are told them: none, where nobody has
-- measured lately.
local function pressure_of(queue, now)
  local level, score, until_us, hint = match(state_get('pressure:' .. queue) or '', '^(%d)|(%d+)|(%d+)|(%d+)|')
  if not level or tonumber(until_us) < now then return 1, '1 0 0' end
  return tonumber(level), level .. ' ' .. score .. ' ' .. hint
end

-- pressures_told adds to a reply, for each path of a queue that is measured, what pressure_of says.
local function pressures_told(reply, now)
  if not call.measured then return reply end
  for i = 1, call.path_count do
    local path = call.paths[i]
    if path.from then reply[#reply + 1] = select(2, pressure_of(path.queue, now)) end
  end
  return reply
end

-- decide returns nil when every bucket on the path holds the cost, else the refusal. Costs are micro-tokens.
local function decide(path, cost)
  for level = 0, 3 do
    local b = path[level]
    if b and (b.level < cost or b.absent and not b.dirty) then return refusal_of(path, cost) end
  end
end

-- path_least returns the level on a path whose bucket holds least, the outermost of equals, and that bucket; nil where there is none.
local function path_least(path)
  local at
  for level = 0, 3 do
    local b = path[level]
    if b and (not at or b.level < path[at].level) then at = level end
  end
  return at, path[at]
end

local function charge(path, cost)
  for level = 0, 3 do
    local b = path[level]
    if b then
      b.level = b.level - cost
      if b.absent and not b.dirty and b.owner then b.owner.count = (b.owner.count or 0) + 1 end
      b.dirty = true
    end
  end
end

-- path_true_up has the buckets of a path hold what work has cost in place of what it reserved, in whole tokens, `elapsed` microseconds ago:
-- buckets.TrueUp, which derives it. left is what the reservation left in each, and refunds what was refunded in all since, in micro-tokens;
-- nil where nobody noted it.
local function path_true_up(path, reserved, actual, elapsed, left, refunds)
  local back = reserved - actual
  for level = 0, 3 do
    local b = path[level]
    local to = b and b.level
    if b and back < 0 then
      to = math.max(b.level + back * 1000000, math.min(b.level, -b.burst))
    elseif b then
      -- Where the rate follows its use over partitions, it may have been all of it.
      local rate = level == 0 and state_get('gm') and call.global_rate * state_num('partitions') or b.rate
      local came = math.ceil(elapsed * rate) + 1
      local room = math.max(0, reserved * 1000000 - came, left and b.burst - left[level] - came - refunds or 0)
      to = math.max(b.level, math.min(b.burst, b.level + math.min(back * 1000000, room)))
    end
    if b and to ~= b.level and (not b.absent or b.dirty or room_for(b)) then
      if b.level == b.burst then b.stamp = call.filled_to end -- Work before this one has filled it: nothing came in since.
      if b.absent and not b.dirty and b.owner then b.owner.count = (b.owner.count or 0) + 1 end
      b.level, b.dirty = to, true
    end
  end
  if back > 0 then state_add('rf', back) end
end

-- buckets_sweep removes what is full again, at most 16 of a tenant with many. A bucket from before the latest policy is
-- not known to be: its full time was counted at a rate that may have been faster.
local function buckets_sweep(t)
  local changed_at = state_num('pat')
  local values, out = redis.call('HGETALL', t.key), {}
  for i = 1, #values, 2 do
    if values[i] ~= '!' and #out < 16 then
      local stamp, fill_us = match(values[i + 1], '^%-?%d+:(%d+):(%d+):')
      if stamp + fill_us <= call.filled_to and tonumber(stamp) >= changed_at then out[#out + 1] = values[i] end
    end
  end
  if #out > 0 then redis.call('HDEL', t.key, unpack(out)) end
end

-- buckets_write stores what was charged, the global bucket in the state. A tenant's buckets go when the last of them is full.
local TTL_SLACK = 2000000
local function buckets_write(now)
  for _, t in pairs(call.charged) do
    local args, n, full_at = {}, 0, 0
    for _, b in ipairs(t.list) do
      if b.dirty then
        local span = bucket_fill(b)
        args[n + 1], args[n + 2] = b.field, bucket_text(b, span)
        n = n + 2
        if b.stamp + span > full_at then full_at = b.stamp + span end
      end
    end
    if n > 0 then
      local renew = full_at > t.expires
      if renew then args[n + 1], args[n + 2] = '!', format('%d', full_at + TTL_SLACK) end
      redis.call('HSET', t.key, unpack(args))
      if renew then
        local at = format('%d', math.ceil((full_at - call.filled_to + now + TTL_SLACK) / 1000))
        if t.expires == 0 then
          redis.call('PEXPIREAT', t.key, at)
        else
          redis.call('PEXPIREAT', t.key, at, 'GT') -- a new policy may have put it off further
        end
      end
      if t.count and t.count >= 128 then buckets_sweep(t) end
    end
  end
  local b = call.global_rate and call.paths[1][0]
  if b and b.dirty then state_set(call.global_bucket, bucket_text(b, bucket_fill(b))) end
end
