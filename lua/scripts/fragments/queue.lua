-- @include state
-- queue: a queue's settings and dynamics. State fields:
--   cfg:QUEUE    name=weight,…|horizon|expired|wait|overflow|poison|age|letters    set by policy; the default is
--                below: classes, microseconds, dead or drop, the longest wait in microseconds (0 for none), what
--                depth.lua says of overflow, lost deliveries that make a job poison, how long dead letters are kept in
--                microseconds (0 for ever) and how many
--   q:QUEUE      cur|left|pace|stamp|V₁|n₁|V₂|n₂…   the pattern's phase; the microseconds from one dispatch to
--                the next while jobs wait, and the time of the last (0 when none does); of each class the virtual
--                time and the number of waiting jobs
--   nq           the number of queues that have a q: field
--   pools:QUEUE  ids of the pools that serve it, by spaces
-- Classes count from 1 here, from 0 in keys and records.
local DEFAULT_QUEUE = 'high=3,medium=2,low=1|3600000000|dead|0|-|3|0|100000'
function reset.queue() call.queues = {} end

local function queue_config(q, text)
  local classes, horizon, expired, wait, overflow, rest = match(text, '^([^|]*)|(%d+)|(%a+)|(%d+)|([^|]*)|(.*)$')
  q.horizon, q.expired, q.wait, q.overflow, q.rest = tonumber(horizon), expired, tonumber(wait), overflow, rest
  q.w, q.names, q.n = {}, {}, 0
  for class, weight in string.gmatch(classes, '([^=,]+)=(%d+)') do
    q.n = q.n + 1
    q.names[q.n], q.w[q.n] = class, tonumber(weight)
  end
end

-- queue_bounds reads what only few calls need.
local function queue_bounds(q)
  local poison, age, letters = match(q.rest, '^(%d+)|(%d+)|(%d+)$')
  return tonumber(poison), tonumber(age), tonumber(letters)
end

local function queue_open(name)
  local q = call.queues[name]
  if q then return q end
  q = { name = name, classes = {}, V = {}, waiting = {}, dispatched = 0 }
  queue_config(q, state_get('cfg:' .. name) or DEFAULT_QUEUE)
  local v = state_get('q:' .. name)
  if v then
    local i = 0
    for x in string.gmatch(v, '[^|]+') do
      i = i + 1
      if i > 4 then
        local c = math.floor((i - 3) / 2)
        if i % 2 == 1 then q.V[c] = tonumber(x) else q.waiting[c] = tonumber(x) end
      elseif i == 1 then q.cur = tonumber(x)
      elseif i == 2 then q.left = tonumber(x)
      elseif i == 3 then q.pace = tonumber(x)
      else q.stamp = tonumber(x) end
    end
    if q.cur > q.n then q.cur, q.left = 1, q.w[1] end
  else
    q.cur, q.left, q.pace, q.stamp, q.fresh = 1, q.w[1], 0, 0, true
  end
  for c = 1, q.n do
    q.V[c] = q.V[c] or 0
    q.waiting[c] = q.waiting[c] or 0
  end
  call.queues[name] = q
  return q
end
