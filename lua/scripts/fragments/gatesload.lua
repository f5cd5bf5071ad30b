-- @include gate
-- gatesload: gates_load reads gates in one call.
local function gates_load(names)
  local k, fields, n = gate_kinds(), {}, 0
  for _, name in ipairs(names) do
    if call.gates[name] == nil and k[sub(name, 1, 1)] then
      call.gates[name], n = false, n + 1
      fields[n] = name
    end
  end
  if n == 0 then return end
  local values = redis.call('HMGET', keys.gates, unpack(fields))
  for i, name in ipairs(fields) do call.gates[name] = gate_parse(name, values[i]) end
end

