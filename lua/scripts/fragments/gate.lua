-- @include anygate
-- @include bucket
-- gate: the one mechanism of pause, breaker, cap and rate. Names, in the order in which they are asked, and what `gates`
-- maps them to:
--   q:QUEUE, t:TENANT, u:TENANT:QUEUE, d:DOWNSTREAM   "limit|held|until|then|reason": at most `limit` jobs in ready
--                   streams, 0 is a pause, NO_SHARE shut too (share.lua); `until` (microseconds, 0 for ever) `then` is the
--                   limit, empty for none
--   t:*, u:*:QUEUE, d:*         the same for each that has none of its own, whose held is kept as "*|held"
--   b:DOWNSTREAM                "limit|held|period": a breaker; only jobs dispatched in the period count
--   r:TENANT, s:DOWNSTREAM      "rate|burst|bucket": dispatches a second, in the units of bucket.lua
-- Lanes wait at h:DOWNSTREAM too, of which shelf.lua tells; `shelves` is the SET of those downstreams, `nh` how many.
-- `ng` says how many there are of each kind, so that kinds of which there are none cost nothing, and names the downstreams
-- with a b: where these have been few since there was none, so that others cost nothing either: b1t20v7|api. With each cap that
-- is new (q, t, u, d) their version v rises; `gv` keeps it where there are none. Waiters
-- stand in gw:GATE|CLASS:QUEUE by their tags; gq:GATE names the CLASS:QUEUE that have some. `marks` maps a job that
-- was dispatched under a breaker to "period|when, by the breaker's clock|downstream"; `nm` counts them.
local DISPATCH = 1000000
local GATES_AT_ONCE = 1000 -- even, and below what unpack can return
local NO_GATES = {}
-- ill is the set of downstreams with a b:, false where it is not known

-- gate_kinds needs `ng` loaded.
local function gate_kinds()
  if not call.kinds then
    call.kinds = {}
    local counts, named, names = match(state_get('ng') or '', '^([^|]*)(|?)(.*)$')
    for kind, n in string.gmatch(counts, '(%a)(%d+)') do call.kinds[kind] = tonumber(n) end
    call.ill = (named ~= '' or not call.kinds.b) and {}
    for name in string.gmatch(names, '[^|]+') do call.ill[name] = true end
  end
  return call.kinds
end

-- gate_default names the gate of all that have none of their own.
local function gate_default(name)
  local kind = byte(name)
  if kind == 117 then return 'u:*' .. sub(name, string.find(name, ':', 3, true), -1) end
  if kind == 116 then return 't:*' end
  if kind == 100 then return 'd:*' end
end

local function gate_is_rate(name)
  local kind = byte(name)
  return kind == 114 or kind == 115
end

local gate

-- gate_parse returns the gate of a value, false for none: that of all where there is no value.
local function gate_parse(name, v)
  local limit, held, rest = '*', 0, nil
  if v then limit, held, rest = match(v, '^([^|]*)|([^|]*)|?(.*)$') end
  if limit == '*' then
    local default = gate_default(name)
    local g = default and default ~= name and gate(default)
    return g and { limit = g.limit, held = tonumber(held), default = true } or false
  end
  if gate_is_rate(name) then
    return bucket_settle({ rate = tonumber(limit), burst = tonumber(held) }, rest ~= '' and rest, 0, state_num('bt'))
  end
  return { limit = tonumber(limit), held = tonumber(held), rest = rest }
end

-- gate returns a gate, false for none.
function gate(name)
  local g = call.gates[name]
  if g == nil then
    g = gate_kinds()[sub(name, 1, 1)] and gate_parse(name, redis.call('HGET', keys.gates, name)) or false
    call.gates[name] = g
  end
  return g
end

-- gates_there returns those of some gates that there are. It needs them loaded.
local function gates_there(names)
  local there = NO_GATES
  for _, name in ipairs(names) do
    if call.gates[name] then
      if there == NO_GATES then there = {} end
      there[#there + 1] = name
    end
  end
  return there
end

-- gate_units returns how many more may pass.
local function gate_units(g)
  if g.burst then return floor(g.level / DISPATCH) end
  return g.limit - g.held
end

local function gate_closed(name)
  local g = gate(name)
  return g and gate_units(g) <= 0
end

-- tenant_gates and lane_gates name what stands before a tenant in a queue, and before a lane: gates of the kinds of which
-- there are any, or of EVERY_KIND (everykind.lua). They are asked for each job, so `lane_names` keeps the latter.
function reset.gate() call.gates, call.gates_dirty, call.kinds, call.ill, call.lane_names = {}, {}, nil, nil, {} end

local function tenant_gates(tenant, queue, of)
  local k = of or gate_kinds()
  if not (k.t or k.u or k.r) then return NO_GATES end
  local names = {}
  if k.t then names[#names + 1] = 't:' .. tenant end
  if k.u then names[#names + 1] = 'u:' .. tenant .. ':' .. queue end
  if k.r then names[#names + 1] = 'r:' .. tenant end
  return names
end

local function lane_gates(downstream, of)
  if downstream == '' then return NO_GATES end
  local names = not of and call.lane_names[downstream]
  if names then return names end
  local k = of or gate_kinds()
  names = {}
  if k.d then names[#names + 1] = 'd:' .. downstream end
  if k.b and (of or not call.ill or call.ill[downstream]) then names[#names + 1] = 'b:' .. downstream end
  if k.s then names[#names + 1] = 's:' .. downstream end
  if not of then call.lane_names[downstream] = names end
  return names
end

-- gate_pass counts a dispatch under a gate that there is. It returns the period of a breaker.
local function gate_pass(name)
  local g = gate(name)
  call.gates_dirty[name] = true
  if g.burst then
    g.level = g.level - DISPATCH
  else
    g.held = g.held + 1
  end
  return byte(name) == 98 and g.rest or nil
end

local function gate_text(g)
  if g.default then return format('*|%d', g.held) end
  if g.burst then return format('%.17g|%d|%s', g.rate, g.burst, bucket_text(g, bucket_fill(g))) end
  return format('%d|%d|%s', g.limit, g.held, g.rest)
end

local function gates_write()
  local texts, gone = {}, {}
  for name in pairs(call.gates_dirty) do
    local g = call.gates[name]
    if g and (g.held ~= 0 or not g.default) then
      texts[#texts + 1] = name
      texts[#texts + 1] = gate_text(g)
    else
      gone[#gone + 1] = name
    end
  end
  call.gates_dirty = {}
  for i = 1, #texts, GATES_AT_ONCE do redis.call('HSET', keys.gates, unpack(texts, i, math.min(#texts, i + GATES_AT_ONCE - 1))) end
  for i = 1, #gone, GATES_AT_ONCE do redis.call('HDEL', keys.gates, unpack(gone, i, math.min(#gone, i + GATES_AT_ONCE - 1))) end
end

local function gate_park(name, class, queue, tag, member)
  local line = class .. ':' .. queue
  redis.call('ZADD', call.prefix .. 'gw:' .. name .. '|' .. line, format('%.17g', tag), member)
  redis.call('SADD', call.prefix .. 'gq:' .. name, line)
  if byte(name) == 104 and redis.call('SADD', keys.shelves, sub(name, 3)) == 1 then state_add('nh', 1) end
end

-- gate_tidy forgets a line of a gate whose last waiter has gone.
local function gate_tidy(name, line)
  if redis.call('EXISTS', call.prefix .. 'gw:' .. name .. '|' .. line) == 1 then return end
  redis.call('SREM', call.prefix .. 'gq:' .. name, line)
  if byte(name) == 104 and redis.call('EXISTS', call.prefix .. 'gq:' .. name) == 0 then
    state_add('nh', -redis.call('SREM', keys.shelves, sub(name, 3)))
  end
end
