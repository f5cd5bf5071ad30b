-- uniques: unique keys that stay when their job has ended, ZSET `uniques:TENANT` of them by the end of their time, in
-- microseconds. A tenant has at most UNIQUE_CAP; each counts as UNIQUE_BYTES of what it has over all its queues.
local UNIQUE_CAP, UNIQUE_BYTES = 1000000, 300

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

-- overflow: what becomes of a job for which its tenant's depth leaves no room, in its queue or over all. It refuses the job, or makes
-- it a spilled one, or names the jobs that go out for it: the oldest of the lowest class, none of a class above its own; at most
-- DROPS a call, of those that waited before it. While Redis fills up, a tenant has at most MEMORY_SHARE times what it leaves: the
-- more there are that take all they can, the less has each, and somebody new always finds room.
local DROPS, MEMORY_SHARE = 64, 4

local function victims(job, b, d, size)
  local found = redis.call('ZRANGE', call.prefix .. 'old:' .. job.depth, 0, DROPS - 1, 'WITHSCORES')
  local chosen, jobs_out, bytes_out = {}, 0, 0
  for i = 1, #found, 2 do
    local key = found[i]
    if not call.dropped[key] then
      if 127 - floor(score_of(found[i + 1]) / 35184372088832) < job.path.class - 1 or call.drops + #chosen == DROPS then break end
      local rec = redis.call('HGET', keys.jobs, key)
      if rec then
        chosen[#chosen + 1] = { key = key, rec = rec }
        jobs_out, bytes_out = jobs_out + 1, bytes_out + job_size(key, rec)
      end
      if d.plan_jobs + 1 - jobs_out <= b.jobs and d.plan_bytes + size - bytes_out <= b.bytes then
        return chosen, jobs_out, bytes_out
      end
    end
  end
end

-- total_refused returns the refusal of a job for which its tenant's depth over all queues leaves no room.
local function total_refused(job, t, most, left, jobs, bytes)
  if t.uniques == nil then t.uniques = uniques_bytes(job.path.tenant) end
  local all = t.plan_bytes + t.uniques
  if most and (t.plan_jobs + jobs > most.jobs or all + bytes > most.bytes) then return format('full %d %d', t.plan_jobs, all) end
  if left and all + bytes > MEMORY_SHARE * (left - bytes) then return format('share %d %d', t.plan_jobs, all) end
end

local function overflow(job, left)
  local path = job.path
  local b, most = bound_open(path.tenant, path.queue), total_bound(path.tenant)
  if not b and not most and not left then return nil end
  job.depth = path.tenant .. ':' .. path.queue
  local d, t = depth_open(job.depth)
  for _, of in ipairs({ d, t }) do
    if not of.plan_jobs then of.plan_jobs, of.plan_bytes = of.jobs, of.bytes end
  end
  if b and not d.spilled then d.spilled = redis.call('ZCARD', call.prefix .. 'spill:' .. job.depth) end
  local size = COST_AT - 1 + #job.rest + (job.payload or job.redrive and large_size(job.key, job.flags) or 0)
  if b and size > b.bytes or most and size > most.bytes then return format('huge %d', size) end
  local moves = b and b.policy == 'm'
  local spills = moves or b and b.policy == 's'
  local jobs_in, bytes_in, chosen = 1, size, nil
  if b and (spills and d.spilled > 0 or d.plan_jobs + 1 > b.jobs or d.plan_bytes + size > b.bytes) then
    if moves and not d.far then d.far = far_count(job.depth) end
    if spills and d.spilled - (moves and d.far or 0) < b.spill then
      job.spilled, d.spilled = true, d.spilled + 1
      if job.start then job.flags = job.flags + DELAYED end
      job.size = size
      return nil
    end
    local jobs_out, bytes_out
    if b.policy == 'd' then chosen, jobs_out, bytes_out = victims(job, b, d, size) end
    if not chosen then
      return format('overflow %d %d', d.plan_jobs, d.plan_bytes) .. (moves and format(' %d', far_trouble(d.far >= b.far)) or '')
    end
    jobs_in, bytes_in = 1 - jobs_out, size - bytes_out
  end
  if most or left then
    local refused = total_refused(job, t, most, left, jobs_in, bytes_in)
    if refused then return refused end
  end
  if chosen then
    job.victims, call.drops = chosen, call.drops + #chosen
    for _, v in ipairs(chosen) do call.dropped[v.key] = true end
  end
  for _, of in ipairs({ d, t }) do of.plan_jobs, of.plan_bytes = of.plan_jobs + jobs_in, of.plan_bytes + bytes_in end
  job.size = size
end

function reset.overflow()
  call.uniques_new = {}
  call.dropped, call.drops = {}, 0
end
