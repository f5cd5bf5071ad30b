-- @include freed
-- @include gateset
-- period: the gate of a circuit breaker. While it is there, each job dispatched to the downstream counts against it until it
-- leaves the ready stream or another period begins. Whoever calls these ends with freed_wake and fill.
-- breaker_gate begins a period with a limit of jobs at a time, 0 for shut; nil takes the gate away.
local function breaker_gate(downstream, limit)
  local name = 'b:' .. downstream
  if not limit then
    gate_remove(name)
  else
    if not gate(name) then gate_count(name, 1) end
    gates[name] = { limit = limit, held = 0, rest = format('%d', state_add('seq', 1)) }
    gates_dirty[name] = true
  end
  freed[name] = true
end

-- breaker_widen changes the limit of the period.
local function breaker_widen(downstream, limit)
  local name = 'b:' .. downstream
  gate(name).limit = limit
  gates_dirty[name], freed[name] = true, true
end
