-- @include bucket
-- path: the buckets on the way of a job, global, tenant, queue and priority, for scripts that charge them all or none.
-- A script binds PATHS, PATHS_AT, BUCKET_CAP, GLOBAL_RATE, GLOBAL_BURST, what the keys of tenants' buckets begin with
-- (BUCKETS), and the field of the state that has the global one (GLOBAL_BUCKET). A path is PATH_SIZE arguments: tenant, queue,
-- class from 0, its name, then rate and burst of tenant, queue and priority; a rate of "" is no bucket.
local PATH_SIZE = 10
local filled_to -- the buckets' own time, which never goes back
local paths, buckets, tenants = {}, {}, {}

-- path_read notes a path's buckets; the fields of one tenant's buckets are read together.
local function path_read(i)
  local at = PATHS_AT + (i - 1) * PATH_SIZE
  local path = { tenant = ARGV[at], queue = ARGV[at + 1], class = ARGV[at + 2] + 1 }
  local suffixes = { '', path.queue, path.queue .. ':' .. ARGV[at + 3] }
  for level = 1, 3 do
    local rate = tonumber(ARGV[at + 2 + 2 * level])
    if rate then
      local scope = path.tenant .. ':' .. suffixes[level]
      if not buckets[scope] then
        local t = tenants[path.tenant] or { key = P .. BUCKETS .. path.tenant, fields = { '!' }, scopes = {} }
        tenants[path.tenant] = t
        t.fields[#t.fields + 1] = suffixes[level]
        t.scopes[#t.fields] = scope
        buckets[scope] = { field = suffixes[level], owner = t, rate = rate, burst = tonumber(ARGV[at + 3 + 2 * level]) }
      end
      path[level] = buckets[scope]
    end
  end
  paths[i] = path
  return path
end

-- buckets_read needs `pat`, GLOBAL_BUCKET and the clocks loaded.
local function buckets_read()
  filled_to = state_num('bt')
  local changed_at = state_num('pat')
  for _, t in pairs(tenants) do
    local values = redis.call('HMGET', t.key, unpack(t.fields))
    t.expires = tonumber(values[1] or 0)
    for i, scope in pairs(t.scopes) do
      local b = buckets[scope]
      b.absent = not values[i]
      local s = bucket_settle(values[i], b.rate, b.burst, changed_at, filled_to)
      b.level, b.stamp = s.level, s.stamp
    end
  end
  if GLOBAL_RATE then
    local b = bucket_settle(state_get(GLOBAL_BUCKET), GLOBAL_RATE, GLOBAL_BURST, changed_at, filled_to)
    b.all = true
    for i = 1, PATHS do paths[i][0] = b end
  end
end

-- room_for reports whether the tenant may have one more bucket; full ones make room.
local function room_for(b)
  local t = b.owner
  if not t then return true end
  t.count = t.count or redis.call('HLEN', t.key)
  return t.count < BUCKET_CAP
end

-- decide returns nil when every bucket on the path holds the cost, else the refusal. Costs are micro-tokens.
local function decide(path, cost)
  local worst, wait_most, burst
  for level = 0, 3 do
    local b = path[level]
    if b and b.burst < cost then return format('costly %d %d', level, b.burst) end
  end
  for level = 0, 3 do
    local b = path[level]
    if b and b.level < cost then
      local wait = bucket_wait(b, cost, filled_to)
      if not worst or wait > wait_most then worst, wait_most, burst = level, wait, b.burst end
    elseif b and b.absent and not b.dirty and not room_for(b) then
      return format('buckets %d', level)
    end
  end
  if worst then return format('limited %d %d %d %d', worst, path[worst].level, wait_most, burst) end
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

-- buckets_sweep removes what is full again, at most 16 of a tenant with many. A bucket from before the latest policy is
-- not known to be: its full time was counted at a rate that may have been faster.
local function buckets_sweep(t)
  local changed_at = state_num('pat')
  local values, out = redis.call('HGETALL', t.key), {}
  for i = 1, #values, 2 do
    if values[i] ~= '!' and #out < 16 then
      local stamp, fill_us = match(values[i + 1], '^%-?%d+:(%d+):(%d+):')
      if stamp + fill_us <= filled_to and tonumber(stamp) >= changed_at then out[#out + 1] = values[i] end
    end
  end
  if #out > 0 then redis.call('HDEL', t.key, unpack(out)) end
end

-- buckets_write stores what was charged, the global bucket in the state. A tenant's buckets go when the last of them is full.
local TTL_SLACK = 2000000
local function buckets_write(now)
  for _, t in pairs(tenants) do
    local args, full_at = {}, 0
    for _, scope in pairs(t.scopes) do
      local b = buckets[scope]
      if b.dirty then
        args[#args + 1] = b.field
        args[#args + 1] = bucket_text(b)
        full_at = math.max(full_at, b.stamp + bucket_fill(b))
      end
    end
    if #args > 0 then
      local renew = full_at > t.expires
      if renew then
        args[#args + 1] = '!'
        args[#args + 1] = format('%d', full_at + TTL_SLACK)
      end
      redis.call('HSET', t.key, unpack(args))
      if renew then
        local at = format('%d', math.ceil((full_at - filled_to + now + TTL_SLACK) / 1000))
        if t.expires == 0 then
          redis.call('PEXPIREAT', t.key, at)
        else
          redis.call('PEXPIREAT', t.key, at, 'GT') -- a new policy may have put it off further
        end
      end
      if t.count and t.count >= 128 then buckets_sweep(t) end
    end
  end
  local b = GLOBAL_RATE and paths[1][0]
  if b and b.dirty then state_set(GLOBAL_BUCKET, bucket_text(b)) end
end
