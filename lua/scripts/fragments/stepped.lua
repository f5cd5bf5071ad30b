-- @include follow
-- @include worker
-- stepped: what a step of the clock asks for.

-- look_again lets everything look again that goes by another clock, or that was to go on at once, and whose timer the old clock may
-- have put far ahead: breakers, fills, spilled jobs, and waiters of rates and of open gates.
local function look_again(now)
  local timers = {}
  for _, downstream in ipairs(redis.call('SMEMBERS', keys.breakers)) do timers[#timers + 1] = 'b' .. downstream end
  for id in string.gmatch(state_get('pools') or '', '%S+') do timers[#timers + 1] = 'f' .. id end
  for _, name in ipairs(redis.call('SMEMBERS', keys.spills)) do timers[#timers + 1] = 'o' .. name end
  for _, timer in ipairs(timers) do redis.call('ZADD', keys.due, 'XX', format('%d', now), timer) end
  for _, name in ipairs(redis.call('HKEYS', keys.gates)) do call.freed[name] = true end
  for _, downstream in ipairs(redis.call('SMEMBERS', keys.shelves)) do call.freed['h:' .. downstream] = true end
end

-- clock_stepped arms every registration anew.
local function clock_stepped(now)
  look_again(now)
  local all = redis.call('HGETALL', keys.workers)
  for i = 1, #all, 2 do
    local lease = match(all[i + 1], '(%d+)$')
    redis.call('ZADD', keys.due, format('%d', now + lease), 'w' .. all[i])
  end
  state_add('steps', 1)
  call.earliest = nil
end
