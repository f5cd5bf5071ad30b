-- follow: the gate of a downstream follows its breaker. While it is there, each job dispatched to the downstream counts
-- against it until it leaves the ready stream or another period begins.

-- gate_begin begins a period, named by a number that the downstream has not had before, with a limit of jobs at a
-- time, 0 for shut; nil takes the gate away.
local function gate_begin(name, limit, period)
  if not limit then return gate_remove(name) end
  if not gate(name) then gate_count(name, 1) end
  call.gates[name] = { limit = limit, held = 0, rest = format('%d', period) }
end

-- breaker_follow is for whoever has saved a change. It ends with freed_wake and fill.
local function breaker_follow(f)
  local name, limit = 'b:' .. f.name, breaker.limit(f)
  if f.period ~= f.was.period or not limit then
    gate_begin(name, limit, f.period)
  else
    gate(name).limit = limit
  end
  call.gates_dirty[name], call.freed[name] = true, true
end
