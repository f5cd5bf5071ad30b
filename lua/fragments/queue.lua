-- @include state
-- queue: a queue's settings and dynamics. State fields:
--   cfg:QUEUE    name=weight,…|horizon|expired    set by policy; the default is below
--   q:QUEUE      cur|left|rate|stamp|since|V₁|n₁|V₂|n₂…   the pattern's phase, the rate of dispatch, and of
--                each class the virtual time and the number of waiting jobs
--   pools:QUEUE  ids of the pools that serve it, by spaces
-- Classes count from 1 here, from 0 in keys and records.
local DEFAULT_QUEUE = 'high=3,medium=2,low=1|3600000000|dead'
local RATE_SPAN = 10000000
local queues = {}

local function queue_config(q, text)
  local classes, horizon, expired = match(text, '^([^|]*)|([^|]*)|([^|]*)$')
  q.horizon, q.expired = tonumber(horizon), expired
  q.w, q.names, q.n = {}, {}, 0
  for class, weight in string.gmatch(classes, '([^=,]+)=(%d+)') do
    q.n = q.n + 1
    q.names[q.n], q.w[q.n] = class, tonumber(weight)
  end
end

local function queue_open(name)
  local q = queues[name]
  if q then return q end
  q = { name = name, classes = {}, V = {}, waiting = {}, dispatched = 0 }
  queue_config(q, state_get('cfg:' .. name) or DEFAULT_QUEUE)
  local v = state_get('q:' .. name)
  if v then
    local i = 0
    for x in string.gmatch(v, '[^|]+') do
      i = i + 1
      if i > 5 then
        local c = floor((i - 4) / 2)
        if i % 2 == 0 then q.V[c] = tonumber(x) else q.waiting[c] = tonumber(x) end
      elseif i == 1 then q.cur = tonumber(x)
      elseif i == 2 then q.left = tonumber(x)
      elseif i == 3 then q.rate = tonumber(x)
      elseif i == 4 then q.stamp = tonumber(x)
      else q.since = tonumber(x) end
    end
    if q.cur > q.n then q.cur, q.left = 1, q.w[1] end
  else
    q.cur, q.left, q.rate, q.stamp, q.since = 1, q.w[1], 0, 0, 0
  end
  for c = 1, q.n do
    q.V[c] = q.V[c] or 0
    q.waiting[c] = q.waiting[c] or 0
  end
  queues[name] = q
  return q
end

-- queue_tally folds the dispatches of this call into the rate, an exponential average over RATE_SPAN.
local function queue_tally(q, now)
  if q.dispatched == 0 then return end
  if q.since == 0 or now - q.stamp > 3 * RATE_SPAN or now < q.stamp then
    q.rate, q.since, q.stamp = 0, now, now
  end
  q.rate = q.rate * math.exp(-(now - q.stamp) / RATE_SPAN) + q.dispatched / RATE_SPAN
  q.stamp, q.dispatched = now, 0
end

local function queue_write(now)
  for name, q in pairs(queues) do
    if q.touched then
      queue_tally(q, now)
      local parts = { q.cur, q.left, format('%.9g', q.rate), format('%.0f', q.stamp), format('%.0f', q.since) }
      for c = 1, q.n do
        parts[#parts + 1] = format('%.17g', q.V[c])
        parts[#parts + 1] = format('%.0f', q.waiting[c])
      end
      state_set('q:' .. name, table.concat(parts, '|'))
      q.touched = false
    end
  end
end

-- pattern: of Σ weights consecutive picks, w[i] are i's, in order, while all can run; one that cannot forfeits
-- the rest of its turn. pattern_next only looks; pattern_commit moves the phase.
local function pattern_next(p, can_run)
  if p.left > 0 and can_run(p, p.cur) then return p.cur end
  for k = 1, p.n do
    local i = (p.cur + k - 1) % p.n + 1
    if can_run(p, i) then return i end
  end
end

local function pattern_commit(p, i)
  if i == p.cur and p.left > 0 then
    p.left = p.left - 1
  else
    p.cur, p.left = i, p.w[i] - 1
  end
end
