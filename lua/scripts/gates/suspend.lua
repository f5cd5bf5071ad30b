-- suspend stops admission for a queue, a tenant or a tenant in a queue, or resumes it, and tells the audit who did.
-- KEYS[1] state  hash; the partition's other keys share its hash tag and are named after it
-- ARGV[1] now  microseconds, "" for Redis TIME
-- ARGV[2] name  q:QUEUE, t:TENANT or u:TENANT:QUEUE
-- ARGV[3] duration  microseconds, 0 for ever, "" to resume
-- ARGV[4] keep  "1" leaves one alone that ends later
-- ARGV[5] by  who does it and why, as fragments/audit.lua reads it; callers are told the reason
-- Reply {"suspended" | "kept", its end, microseconds, 0 for never} or {"resumed" | "none", 0}
-- Of triggers (fragments/audit.lua) what somebody else has suspended stays as it is, and the audit is told once of one that goes on.
-- Never touches a job that has entered.
-- @flag allow-oom
-- @relief
function scripts.suspend(KEYS, ARGV)
  local STATE, NOW, NAME, DURATION, KEEP, BY = KEYS[1], ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5]
  local now = now_us(NOW)

  call_begin(now, {})
  local by, until_us, word = by_read(BY), 0, 'none'
  local hold = by.author == TRIGGERS and redis.call('HGET', keys.suspended, NAME) or nil
  if DURATION == '' then
    if not hold_others(by, hold) and redis.call('HDEL', keys.suspended, NAME) == 1 then word = 'resumed' end
  else
    until_us, word = DURATION ~= '0' and now + DURATION or 0, 'suspended'
    local before = KEEP == '1' and tonumber(match(redis.call('HGET', keys.suspended, NAME) or '', '^(%d+)|'))
    if before and (before == 0 or until_us > 0 and before > until_us) then
      until_us, word = before, 'kept'
    elseif hold_others(by, hold) then
      word = 'kept'
    end
  end
  if word ~= 'none' and word ~= 'kept' then
    redis.call('ZREM', keys.due, 's' .. NAME)
    if word == 'suspended' then
      redis.call('HSET', keys.suspended, NAME, format('%d|', until_us) .. hold_reason(by, now))
      if until_us > 0 then due_add(keys.due, until_us, 's' .. NAME) end
    end
    if word ~= 'suspended' or not hold_renewed(by, hold) then audit_act(now, by, NAME, 0, tonumber(DURATION)) end
    state_set('np', redis.call('HLEN', keys.suspended))
  end
  state_write()
  return { word, format('%d', until_us) }
end
