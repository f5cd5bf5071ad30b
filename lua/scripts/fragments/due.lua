-- @include state
-- @include score
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
