-- clear cancels the jobs of a tenant that wait in a queue, in its lanes or kept aside, a portion a call.
-- KEYS[1] state  hash; the partition's other keys share its hash tag and are named after it
-- ARGV[1] now  microseconds, "" for Redis TIME
-- ARGV[2] tenant
-- ARGV[3] queue
-- ARGV[4] by  who does it and why, as fragments/audit.lua reads it
-- Reply {"cleared" | "more", how many jobs it cancelled}: more may wait
-- Never touches a job that waits for a time, runs, is about to, or is a dead letter.
-- @flag allow-oom
-- @relief
-- job_cancel cancels a job that has left its place in a queue, or counts one without a record, and returns how many it has cancelled.
local function job_cancel(key, rec, queue)
  call.moves = call.moves - 1
  if not rec then
    job_gone(key, queue)
    return 0
  end
  leave(key, 'cancelled', rec)
  return 1
end

-- lane_clear takes what there are moves for out of a lane, which is settled even if somebody has emptied it, and returns how many jobs it has cancelled.
local function lane_clear(cl, tenant, lane)
  local members, n = redis.call('ZRANGE', lane_key(cl, tenant, lane), 0, call.moves - 1), 0
  if members[1] then
    redis.call('ZREM', lane_key(cl, tenant, lane), unpack(members))
    waiting_add(cl, lane, -#members)
  else
    call.moves = call.moves - 1
  end
  for _, member in ipairs(members) do
    local key = tenant .. ':' .. sub(member, 13)
    local rec = redis.call('HGET', keys.jobs, key)
    if rec then old_remove(key, rec) end
    n = n + job_cancel(key, rec, cl.q.name)
  end
  lane_shrunk(cl, tenant, lane)
  return n
end

function scripts.clear(KEYS, ARGV)
  local STATE, NOW, TENANT, QUEUE, BY = KEYS[1], ARGV[1], ARGV[2], ARGV[3], ARGV[4]
  local now = now_us(NOW)

  call_begin(now, {})
  local q, spilled, cancelled = queue_open(QUEUE), TENANT .. ':' .. QUEUE, 0
  for _, key in ipairs(redis.call('ZRANGE', call.prefix .. 'spill:' .. spilled, 0, call.moves - 1)) do
    local rec = redis.call('HGET', keys.jobs, key)
    if rec then spill_remove(spilled, key, rec) else spill_gone(spilled, key) end
    cancelled = cancelled + job_cancel(key, rec, QUEUE)
  end
  for c = 1, q.n do
    local cl = class_open(q, c)
    while call.moves > 0 do
      local x = tenant_open(cl, TENANT)
      if not x then break end
      cancelled = cancelled + lane_clear(cl, TENANT, x.lane ~= '*' and x.lane or redis.call('ZRANGE', lanes_key(cl, TENANT), 0, 0)[1])
    end
  end
  local stopped = call.moves == 0
  if cancelled > 0 then audit_act(now, by_read(BY), 'u:' .. spilled, cancelled) end
  freed_wake(now)
  return { (fill(now) or stopped) and 'more' or 'cleared', format('%d', cancelled) }
end
