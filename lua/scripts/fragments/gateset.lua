-- @include gate
-- gateset: gates come and go.
-- gate_count needs `ng` loaded. It names at most NAMED downstreams with a b:.
local NAMED = 8
local function gate_count(name, n)
  local kind, parts, names = sub(name, 1, 1), {}, {}
  local left = (gate_kinds()[kind] or 0) + n
  call.kinds[kind], call.lane_names = left > 0 and left or nil, {}
  if n > 0 and string.find('qtud', kind, 1, true) then call.kinds.v = (call.kinds.v or state_num('gv')) + n end
  if call.kinds.v and not (call.kinds.q or call.kinds.t or call.kinds.u or call.kinds.d) then
    state_set('gv', call.kinds.v)
    call.kinds.v = nil
  end
  for k, count in pairs(call.kinds) do parts[#parts + 1] = format('%s%d', k, count) end
  table.sort(parts)
  if kind == 'b' then
    if left == 0 then call.ill = {} end
    if left > NAMED then call.ill = false end
    if call.ill then call.ill[sub(name, 3)] = n > 0 or nil end
  end
  for downstream in pairs(call.kinds.b and call.ill or {}) do names[#names + 1] = '|' .. downstream end
  table.sort(names)
  state_set('ng', #parts > 0 and table.concat(parts) .. table.concat(names) or false)
end

-- gate_remove takes a gate away. Where there is one for all that have none of their own, that one counts on.
local function gate_remove(name)
  local g, default = gate(name), gate_default(name)
  if not g or g.default then return end
  gate_count(name, -1)
  local all = default and default ~= name and gate(default)
  call.gates[name] = all and { limit = all.limit, held = g.held, default = true } or false
  call.gates_dirty[name] = true
end
