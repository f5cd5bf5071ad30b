-- alive notes for how long a scheduler counts as live, or that it has gone.
-- KEYS[1] state  hash; the partition's other keys share its hash tag and are named after it
-- ARGV[1] now  microseconds, "" for Redis TIME
-- ARGV[2] scheduler  name
-- ARGV[3] life  microseconds from now, 0 when it has gone
-- Reply {"noted"}
-- Never keeps one whose life is over.
-- @flag allow-oom
-- @relief
function scripts.alive(KEYS, ARGV)
  local STATE, NOW, SCHEDULER, LIFE = KEYS[1], ARGV[1], ARGV[2], tonumber(ARGV[3])
  local SCHEDULERS, now = keys.schedulers, now_us(NOW)
  redis.call('ZADD', SCHEDULERS, format('%d', now + LIFE), SCHEDULER)
  redis.call('ZREMRANGEBYSCORE', SCHEDULERS, '-inf', format('%d', now))
  redis.call('PEXPIRE', SCHEDULERS, math.ceil(LIFE / 1000) + 60000)
  return { 'noted' }
end
