-- distinct adds names of tenants and of jobs to those that were seen of a queue in this hour.
-- KEYS[1] state  hash; the partition's other keys share its hash tag and are named after it
-- ARGV[1] now  microseconds, "" for Redis TIME
-- ARGV[2] keep  seconds that an hour is kept
-- ARGV[3] most  largest number of queues in an hour
-- ARGV[4] queue
-- ARGV[5] tenants  how many names of tenants come; names of jobs are behind them
-- ARGV[6] ...  names
-- Reply {"counted"}, or {"full"} where the queue is one too many
-- Never keeps a name: an hour of a queue is two HyperLogLogs of at most 12 KiB.
function scripts.distinct(KEYS, ARGV)
  local STATE, NOW, KEEP, MOST, QUEUE, TENANTS = KEYS[1], ARGV[1], ARGV[2], tonumber(ARGV[3]), ARGV[4], tonumber(ARGV[5])
  local NAMES_AT = 6
  local hour = format('%d', math.floor(now_us(NOW) / 3600000000))
  local queues, behind = call.prefix .. 'distinct:' .. hour, NAMES_AT + TENANTS
  if redis.call('SISMEMBER', queues, QUEUE) == 0 then
    if redis.call('SCARD', queues) >= MOST then return { 'full' } end
    redis.call('SADD', queues, QUEUE)
    redis.call('EXPIRE', queues, KEEP)
  end
  if behind > NAMES_AT then
    local key = call.prefix .. 'dtenants:' .. hour .. ':' .. QUEUE
    redis.call('PFADD', key, unpack(ARGV, NAMES_AT, behind - 1))
    redis.call('EXPIRE', key, KEEP)
  end
  if #ARGV >= behind then
    local key = call.prefix .. 'djobs:' .. hour .. ':' .. QUEUE
    redis.call('PFADD', key, unpack(ARGV, behind))
    redis.call('EXPIRE', key, KEEP)
  end
  return { 'counted' }
end
