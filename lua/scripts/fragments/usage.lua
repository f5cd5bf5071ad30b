-- usage: what jobs, and reservations without a job, reserved and cost, by day of 24 h from 1970 on, tenant and queue, where the policy keeps
-- it: a path says so (path.lua). It is written by the script that charges, or trues up, so that it is counted once whatever dies. usage:DAY is
-- a HASH:
--   TENANT:QUEUE  jobs:calls:reserved:refunded:added, tokens but for the first two
--   TENANT:*      the same of the tenant's queues beyond USAGE_QUEUES and of no queue; *:* of tenants beyond those that the policy keeps
--   TENANT:       the tenant's queues that are counted, joined by commas, and : how many tenants are
-- What is told of a job counts on the day that it entered. `us` is since when the policy has had it kept, in microseconds: what is told
-- of a job that entered before counts nowhere.
local USAGE_DAY, USAGE_DAYS, USAGE_QUEUES = 86400000000, 35, 64
function reset.usage() call.used, call.used_at = {}, {} end

-- usage_note notes what became of a path at some time, for usage_write.
local function usage_note(path, at, jobs, calls, reserved, refunded, added)
  if not path.kept then return end
  local day = floor(at / USAGE_DAY)
  local name = day .. ':' .. path.tenant .. ':' .. path.queue
  local u = call.used_at[name]
  if not u then
    u = { day = day, path = path, 0, 0, 0, 0, 0 }
    call.used_at[name], call.used[#call.used + 1] = u, u
  end
  u[1], u[2], u[3], u[4], u[5] = u[1] + jobs, u[2] + calls, u[3] + reserved, u[4] + refunded, u[5] + added
end

-- usage_field returns where something is counted, and the fields that this changes. What is told of what entered before is counted where that
-- was; a day's fields stay, so that is known.
local function usage_field(u, key)
  local tenant, queue = u.path.tenant, u.path.queue
  local rest = tenant .. ':*'
  local name = queue == '' and rest or tenant .. ':' .. queue
  local v = redis.call('HMGET', key, ':', tenant .. ':', name, rest, '*:*')
  local count, names = tonumber(v[1] or 0), v[2]
  if v[3] then return name, v[3], {} end
  if u[1] + u[2] == 0 then
    if v[4] then return rest, v[4], {} end
    return '*:*', v[5], {}
  end
  if not names then
    if count >= u.path.kept then return '*:*', v[5], {} end
    return name, false, { ':', format('%d', count + 1), tenant .. ':', queue }
  end
  if queue == '' then return rest, false, {} end
  local _, n = string.gsub(names, '[^,]+', '')
  if n >= USAGE_QUEUES then return rest, v[4], {} end
  return name, false, { tenant .. ':', names == '' and queue or names .. ',' .. queue }
end

-- usage_write counts what was noted, but for days that are kept no more.
local function usage_write(now)
  local today = floor(now / USAGE_DAY)
  for _, u in ipairs(call.used) do
    if u.day >= today - USAGE_DAYS then
      local key = call.prefix .. 'usage:' .. format('%d', u.day)
      local field, before, args = usage_field(u, key)
      local a, b, c, d, e = match(before or '', '^(%d+):(%d+):(%d+):(%d+):(%d+)$')
      args[#args + 1] = field
      args[#args + 1] = format('%d:%d:%d:%d:%d', (a or 0) + u[1], (b or 0) + u[2], (c or 0) + u[3], (d or 0) + u[4], (e or 0) + u[5])
      redis.call('HSET', key, unpack(args))
      if not before then redis.call('EXPIRE', key, format('%d', (u.day + USAGE_DAYS + 1) * 86400 - floor(now / 1000000))) end
    end
  end
end

-- usage_settle notes what a job has cost that had reserved something else.
local function usage_settle(path, rec, arrival, cost)
  local reserved = cost_at(rec, COST_AT)
  if not path.kept or arrival < tonumber(state_get('us') or math.huge) then return end
  usage_note(path, arrival, 0, 0, 0, math.max(0, reserved - cost), math.max(0, cost - reserved))
end

-- usage_want has usage kept from now on, or no more.
local function usage_want(wanted, now)
  if wanted == (state_get('us') and true or false) then return end
  state_set('us', wanted and now)
end
