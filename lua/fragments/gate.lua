-- @include state
-- gate: the one mechanism of pause, breaker, cap and rate. A gate has a limit of units (0 is shut; no gate at
-- all is no limit) and holds one unit for each entry of a ready stream that passed under it. `gates` maps
-- its name to "limit|held|until|then|reason". Names: q:QUEUE, t:TENANT, u:TENANT:QUEUE, d:DOWNSTREAM.
-- Waiters stand in gw:GATE|CLASS:QUEUE by their tags; gq:GATE names the CLASS:QUEUE that have some.
local GATES = P .. 'gates'
local gates, gates_dirty = {}, {}

-- gates_any needs `ng`, the number of gates, loaded; without gates nothing below costs a call.
local function gates_any()
  return state_num('ng') > 0
end

local function gate(name)
  local g = gates[name]
  if g == nil then
    local v = redis.call('HGET', GATES, name)
    g = false
    if v then
      local limit, held, rest = match(v, '^(%d+)|(%d+)|(.*)$')
      g = { limit = tonumber(limit), held = tonumber(held), rest = rest }
    end
    gates[name] = g
  end
  return g
end

local function gate_closed(name)
  local g = gate(name)
  return g and g.held >= g.limit
end

local function gate_hold(name, units)
  local g = gate(name)
  if g then
    g.held = math.max(0, g.held + units)
    gates_dirty[name] = true
  end
end

-- gate_names returns the gates that an entry of a ready stream counts against.
local function gate_names(queue, tenant, downstream)
  return { 'q:' .. queue, 't:' .. tenant, 'u:' .. tenant .. ':' .. queue,
    downstream ~= '' and 'd:' .. downstream or nil }
end

local function gates_write()
  for name in pairs(gates_dirty) do
    local g = gates[name]
    if g then redis.call('HSET', GATES, name, format('%d|%d|', g.limit, g.held) .. g.rest) end
  end
  gates_dirty = {}
end

local function gate_park(name, class, queue, tag, member)
  local line = class .. ':' .. queue
  redis.call('ZADD', P .. 'gw:' .. name .. '|' .. line, format('%.17g', tag), member)
  redis.call('SADD', P .. 'gq:' .. name, line)
end
