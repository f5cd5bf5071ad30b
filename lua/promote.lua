-- promote runs what is due: retries and delays, ended leases, passed deadlines, gates whose time is over, fills
-- that go on. One of N schedulers holds the timer lease.
-- KEYS[1] state  hash; the partition's other keys share its hash tag and are named after it
-- ARGV[1] now  microseconds, "" for Redis TIME
-- ARGV[2] owner  the scheduler's name
-- ARGV[3] timer_lease  microseconds
-- Reply {"promoted" | "more" | "held", microseconds until the next timer or until the other's lease ends, -1
--   for none, jobs moved, clock steps seen}
-- Never makes more than MOVES moves, and never ends a lease on a clock that has just stepped.
local STATE, NOW, OWNER, TIMER_LEASE = KEYS[1], ARGV[1], ARGV[2], tonumber(ARGV[3])
-- @include call
-- @include timers
-- @include stepped
-- @include rotate
-- @include relief
local now = now_us(NOW)

-- later_promote uses half of the moves: however many jobs are due at once, timers run, and workers get some of them.
local function later_promote()
  local keys = redis.call('ZRANGEBYSCORE', LATER, '-inf', format('%d', now), 'LIMIT', 0, math.ceil(moves / 2))
  if #keys == 0 then return end
  moves = moves - #keys
  redis.call('ZREM', LATER, unpack(keys))
  local records = redis.call('HMGET', JOBS, unpack(keys))
  for i, key in ipairs(keys) do job_return(key, records[i], now) end
end

call_begin(now, { 'promoter', 'rot', 'dw', 'eo', 'steps' })
local until_us, owner = match(state_get('promoter') or '0|', '^(%d+)|(.*)$')
until_us = tonumber(until_us)
if owner ~= OWNER and until_us >= now and until_us <= now + TIMER_LEASE then
  return { 'held', format('%d', until_us - now + 1), '0', '0' }
end
state_set('promoter', format('%d|%s', now + TIMER_LEASE, OWNER))
ended_rotate()
local stepped = state_num('step') == 1
if stepped then clock_stepped(now) end
later_promote()
-- Fills and gates that ran out of moves go on at once: their timers stand ahead only for the case that nobody calls.
local timers = redis.call('ZRANGEBYSCORE', DUE, '-inf', format('%d', now + CONTINUE_AFTER), 'WITHSCORES', 'LIMIT', 0, MOVES)
for i = 1, #timers, 2 do
  if moves == 0 then break end
  local kind = sub(timers[i], 1, 1)
  if score_of(timers[i + 1]) <= now or match(kind, '[fko]') then
    redis.call('ZREM', DUE, timers[i])
    timer_run(timers[i], score_of(timers[i + 1]), now)
  end
end
freed_wake(now)
local continues = fill(now)
earliest = nil
local next_at = due_earliest()
-- Without moves left, a timer that goes on at once may not have been come to.
local soon = now + (moves == 0 and CONTINUE_AFTER or 0)
local word = (continues or next_at <= soon) and 'more' or 'promoted'
return { word, next_at < 9e15 and format('%d', math.max(0, next_at - now)) or '-1', format('%d', MOVES - moves),
  stepped and '1' or '0' }
