-- @include state
-- @include score
-- ends: names that are kept until a time, a ZSET of them by it in microseconds, which goes with the last.
-- ends_add keeps a name for longer, and forgets up to 16 whose time has passed.
local function ends_add(zset, name, until_us, now)
  local passed = redis.call('ZRANGEBYSCORE', zset, '-inf', format('%d', now), 'LIMIT', 0, 16)
  if #passed > 0 then redis.call('ZREM', zset, unpack(passed)) end
  redis.call('ZADD', zset, 'GT', format('%d', until_us), name)
  local last = redis.call('ZRANGE', zset, -1, -1, 'WITHSCORES')
  redis.call('PEXPIREAT', zset, format('%d', math.ceil(score_of(last[2]) / 1000)))
end

local function ends_count(zset, now)
  return redis.call('ZCOUNT', zset, format('%d', now), '+inf')
end
