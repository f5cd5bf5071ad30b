-- reset fills the bucket of a scope, and tells the audit who did.
-- KEYS[1] state  hash; the partition's other keys share its hash tag and are named after it
-- ARGV[1] now  microseconds, "" for Redis TIME
-- ARGV[2] scope  whose bucket it is
-- ARGV[3] tenant  of the scope, "" for that of all
-- ARGV[4] field  of the tenant's buckets
-- ARGV[5] by  who does it and why, as fragments/audit.lua reads it
-- Reply {"reset" | "full"}; one that is full already is not told of
-- Never touches another scope's bucket: those above it stay as they are.
-- @flag allow-oom
-- @relief
function scripts.reset(KEYS, ARGV)
  local STATE, NOW, SCOPE, TENANT, FIELD, BY = KEYS[1], ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5]
  local now = now_us(NOW)

  clock_begin(now, {})
  local key, field = call.prefix .. 'b:' .. TENANT, FIELD -- That of all stands in the state.
  local gone = TENANT == '' and redis.call('HDEL', STATE, 'gb', 'gbo') or redis.call('HDEL', key, field)
  if gone == 0 then return { 'full' } end
  audit_act(now, by_read(BY), SCOPE, 0)
  state_write()
  return { 'reset' }
end
