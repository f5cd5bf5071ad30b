-- @include gate
-- @include weigh
-- hunger: who wants more of a bound than this partition's part of it.

-- global_level returns the level of the global bucket, what is missing to its burst, and its rate, as they stand at a time;
-- nothing where it is full. What is missing may be a little too much.
local function global_level(at)
  local level, stamp, span, rate = match(state_get('gb') or '', '^(%-?%d+):(%d+):(%d+):(.+)$')
  local passed = level and math.max(0, at - stamp)
  if not level or passed >= tonumber(span) then return nil end
  local gained = floor(passed * rate)
  return level + gained, math.max(0, span * rate - gained), tonumber(rate)
end

-- gate_hunger tells who waits at a gate, in the form of queue_weigh: of a queue whose cap is reached what is runnable there, of
-- a downstream how many waiters there are; nothing where nobody does, or where an operator has shut it.
local function gate_hunger(name)
  if not gate_is_rate(name) and (not gate_closed(name) or gate(name).limit == 0) then return '' end
  if byte(name) == 113 then
    local q = queue_open(sub(name, 3))
    for c = 1, q.n do
      if redis.call('EXISTS', call.prefix .. 'act:' .. c - 1 .. ':' .. q.name) == 1 then return queue_weigh(q) end
    end
    return ''
  end
  local waiters = 0
  for _, line in ipairs(redis.call('SMEMBERS', call.prefix .. 'gq:' .. name)) do
    waiters = waiters + redis.call('ZCARD', call.prefix .. 'gw:' .. name .. '|' .. line)
  end
  return waiters > 0 and format('1:%d', waiters) or ''
end

-- hunger is gate_hunger for whatever may be shared. Nobody waits at the global bucket: below half it counts as wanted.
local function hunger(name)
  if name ~= 'global' then return gate_hunger(name) end
  local level, missing = global_level(state_num('bt'))
  return level and level < math.max((level + missing) / 2, DISPATCH) and '1:1' or ''
end
