-- suspend stops admission for a queue, a tenant or a tenant in a queue, or resumes it.
-- KEYS[1] state  hash; the partition's other keys share its hash tag and are named after it
-- ARGV[1] now  microseconds, "" for Redis TIME
-- ARGV[2] name  q:QUEUE, t:TENANT or u:TENANT:QUEUE
-- ARGV[3] duration  microseconds, 0 for ever, "" to resume
-- ARGV[4] reason  text that callers are told
-- Reply {"suspended"} or {"resumed"}
-- Never touches a job that has entered.
-- luacheck: ignore 211
local STATE, NOW, NAME, DURATION, REASON = KEYS[1], ARGV[1], ARGV[2], ARGV[3], ARGV[4]
-- @include call
-- @include due
-- @include suspended
-- @include relief
local now = now_us(NOW)

call_begin(now, { 'np' })
redis.call('ZREM', DUE, 's' .. NAME)
if DURATION == '' then
  redis.call('HDEL', SUSPENDED, NAME)
else
  local until_us = DURATION ~= '0' and now + DURATION or 0
  redis.call('HSET', SUSPENDED, NAME, format('%d|%s', until_us, REASON))
  if until_us > 0 then due_add(DUE, until_us, 's' .. NAME) end
end
state_set('np', redis.call('HLEN', SUSPENDED))
state_write()
return { DURATION == '' and 'resumed' or 'suspended' }
