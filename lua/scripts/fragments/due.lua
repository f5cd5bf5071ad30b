-- due: timers, one ZSET by time. Members by their first byte:
--   w worker            its lease ends
--   d class:queue:tenant:downstream   the head of a lane with deadlines passes its own
--   g gate              a gate's time is over, or a rate has a token
--   k gate              waiters of an open gate are not all awake yet
--   f pool              a fill that ran out of moves goes on
--   c pool              consumers are compared with registrations
--   o tenant:queue      spilled jobs that have room go on coming back
--   x job               the deadline of a spilled job passes
--   r queue             its oldest dead letter has been kept for long enough
--   r*cursor            queues without settings of their own are to look at theirs
--   s name              enqueueing is no longer suspended
--   b downstream        its breaker's state ends by time, or is to be looked at
-- Jobs that wait for a time stand in `later`. Whoever lowers the earliest time adds to `wake`, on which
-- schedulers block.
function reset.due() call.earliest = nil end

local function due_earliest()
  if not call.earliest then
    local a = redis.call('ZRANGE', keys.due, 0, 0, 'WITHSCORES')[2]
    local b = redis.call('ZRANGE', keys.later, 0, 0, 'WITHSCORES')[2]
    call.earliest = math.min(score_of(a or 9e15), score_of(b or 9e15))
  end
  return call.earliest
end

local function due_add(zset, at, member)
  local before = due_earliest()
  redis.call('ZADD', zset, format('%d', at), member)
  if at < before then
    call.earliest = at
    redis.call('XADD', keys.wake, 'MAXLEN', 1, '*', 'at', format('%d', at))
  end
end

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
