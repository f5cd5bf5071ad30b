-- @include gate
-- gateset: gates come and go.
-- gate_count needs `ng` loaded.
local function gate_count(name, n)
  local kind, parts = sub(name, 1, 1), {}
  local left = (gate_kinds()[kind] or 0) + n
  kinds[kind], lane_names = left > 0 and left or nil, {}
  for k, count in pairs(kinds) do parts[#parts + 1] = format('%s%d', k, count) end
  table.sort(parts)
  state_set('ng', #parts > 0 and table.concat(parts) or false)
end

-- gate_remove takes a gate away. Where there is one for all that have none of their own, that one counts on.
local function gate_remove(name)
  local g, default = gate(name), gate_default(name)
  if not g or g.default then return end
  gate_count(name, -1)
  local all = default and default ~= name and gate(default)
  gates[name] = all and { limit = all.limit, held = g.held, default = true } or false
  gates_dirty[name] = true
end
