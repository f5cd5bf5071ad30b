-- probing leases one of the rights of which a fleet has so many over all partitions: to run a probe of a half-open breaker, of
-- which each partition has one, or to share out a worker's slots. It is leased in the partition that the name picks.
-- KEYS[1] state  hash; the partition's other keys share its hash tag and are named after it
-- ARGV[1] now  microseconds, "" for Redis TIME
-- ARGV[2] downstream  name, or what else the right is for
-- ARGV[3] token  of the probe, or whoever else leases
-- ARGV[4] limit  leases at a time; 0 gives the lease back
-- ARGV[5] lease  microseconds
-- Reply {"leased"}, {"taken"} or {"back"}
-- Never waits for a probe that is lost: its lease ends.
-- @flag allow-oom
-- @relief
function scripts.probing(KEYS, ARGV)
  local STATE, NOW, DOWNSTREAM, TOKEN, LIMIT, LEASE = KEYS[1], ARGV[1], ARGV[2], ARGV[3], tonumber(ARGV[4]), tonumber(ARGV[5])
  local now = now_us(NOW)

  local key = call.prefix .. 'probing:' .. DOWNSTREAM
  redis.call('ZREM', key, TOKEN)
  if LIMIT == 0 then return { 'back' } end
  redis.call('ZREMRANGEBYSCORE', key, '-inf', format('%d', now))
  if redis.call('ZCARD', key) >= LIMIT then return { 'taken' } end
  redis.call('ZADD', key, format('%d', now + LEASE), TOKEN)
  redis.call('PEXPIRE', key, format('%d', math.ceil(LEASE / 1000) + 1000))
  return { 'leased' }
end
