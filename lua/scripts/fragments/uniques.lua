-- @include ends
-- @include header
-- uniques: unique keys that stay when their job has ended, ZSET `uniques:TENANT` of them by the end of their time, in
-- microseconds. A tenant has at most UNIQUE_CAP; each counts as UNIQUE_BYTES of what it has over all its queues.
local UNIQUE_CAP, UNIQUE_BYTES = 1000000, 300
function reset.uniques() call.uniques_new = {} end

-- unique_stays reports whether a job's unique key goes with its time alone.
local function unique_stays(job)
  return has_flag(job.flags, UNIQUE_END) and has_flag(job.flags, UNIQUE_START)
end

-- uniques_full returns the refusal of a job whose tenant has as many as it may.
local function uniques_full(job, now)
  if not unique_stays(job) then return nil end
  local tenant = job.path.tenant
  local n = ends_count(call.prefix .. 'uniques:' .. tenant, now) + (call.uniques_new[tenant] or 0)
  if n >= UNIQUE_CAP then return format('uniques %d', n) end
  call.uniques_new[tenant] = (call.uniques_new[tenant] or 0) + 1
end

local function uniques_add(job, now)
  local tenant = job.path.tenant
  ends_add(call.prefix .. 'uniques:' .. tenant, sub(job.unique, #tenant + 2), now + job.unique_for, now)
end

local function uniques_bytes(tenant)
  return UNIQUE_BYTES * redis.call('ZCARD', call.prefix .. 'uniques:' .. tenant)
end
