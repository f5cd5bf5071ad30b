-- promote runs what is due: retries and delays, ended leases, passed deadlines, gates whose time is over, fills
-- that go on. One of N schedulers holds the timer lease.
-- KEYS[1] state  hash; the partition's other keys share its hash tag and are named after it
-- ARGV[1] now  microseconds, "" for Redis TIME
-- ARGV[2] owner  the scheduler's name
-- ARGV[3] timer_lease  microseconds
-- ARGV[4] leap  what a leap ahead of the time since the last call of any script is: "" the time that nobody called, "stepped" a
--   step of the clock, "ask" if that is to be asked
-- Reply {"promoted" | "more" | "held" | "leapt", microseconds until the next timer or until the other's lease ends, -1
--   for none, jobs moved, clock steps seen, now} and, where limits move by themselves, it is measured how busy queues are or rates are watched, the version of the policy; leapt asks what the leap is, and nothing was done
-- Never makes more than MOVES moves, and never ends a lease on a clock that has just stepped.
-- @flag allow-oom
-- @relief
-- later_promote uses half of the moves: however many jobs are due at once, timers run, and workers get some of them.
local function later_promote()
  local due = redis.call('ZRANGEBYSCORE', keys.later, '-inf', format('%d', call.now), 'LIMIT', 0, math.ceil(call.moves / 2))
  if #due == 0 then return end
  call.moves = call.moves - #due
  redis.call('ZREM', keys.later, unpack(due))
  local records, found = redis.call('HMGET', keys.jobs, unpack(due)), {}
  for i, key in ipairs(due) do
    local rec = job_return(key, records[i], call.now, lane_join)
    if rec then found[#found + 1], found[#found + 2] = key, rec end
  end
  call.written = found
end

function scripts.promote(KEYS, ARGV)
  local STATE, NOW, OWNER, TIMER_LEASE, LEAP = KEYS[1], ARGV[1], ARGV[2], tonumber(ARGV[3]), ARGV[4]
  local time_us = now_us(NOW)
  call.now = time_us
  call_begin(time_us, { 'promoter', 'steps', 'na', 'npr', 'load', 'anom' })
  local held_until, owner = match(state_get('promoter') or '0|', '^(%d+)|(.*)$')
  held_until = tonumber(held_until)
  if owner ~= OWNER and held_until >= time_us and held_until <= time_us + TIMER_LEASE then
    return { 'held', format('%d', held_until - time_us + 1), '0', '0', format('%d', time_us) }
  end

  state_set('promoter', format('%d|%s', time_us + TIMER_LEASE, OWNER))
  if state_num('step') == 1 and LEAP == 'ask' then
    state_write()
    return { 'leapt', '0', '0', '0', format('%d', time_us) }
  end

  ended_rotate()
  local stepped = state_num('step') == -1 or state_num('step') == 1 and LEAP == 'stepped'
  if stepped then clock_stepped(time_us) end
  if state_num('step') ~= 0 then state_set('step', 0) end
  later_promote()
  -- Fills and gates that ran out of moves go on at once: their timers stand ahead only for the case that nobody calls.
  local timers = redis.call('ZRANGEBYSCORE', keys.due, '-inf', format('%d', time_us + CONTINUE_AFTER), 'WITHSCORES', 'LIMIT', 0, MOVES)
  if timers[1] or next(call.freed) or next(call.shelf_freed) then
    plans_write()
    call.written = nil
  end
  for i = 1, #timers, 2 do
    if call.moves == 0 then break end
    local kind = sub(timers[i], 1, 1)
    if score_of(timers[i + 1]) <= time_us or match(kind, '[fko]') then
      redis.call('ZREM', keys.due, timers[i])
      timer_run(timers[i], score_of(timers[i + 1]), time_us)
    end
  end
  freed_wake(time_us)
  local continues = fill(time_us)
  call.earliest = nil
  local next_at = due_earliest()
  -- Without moves left, a timer that goes on at once may not have been come to.
  local soon = time_us + (call.moves == 0 and CONTINUE_AFTER or 0)
  local word = (continues or next_at <= soon) and 'more' or 'promoted'
  local reply = { word, next_at < 9e15 and format('%d', math.max(0, next_at - time_us)) or '-1', format('%d', MOVES - call.moves),
    stepped and '1' or '0', format('%d', time_us) }
  if state_get('na') or state_get('npr') or state_get('load') or state_get('anom') then reply[#reply + 1] = state_get('pv') or '0' end
  return reply
end
