-- @include gate
-- capnames: the caps that a job in a ready stream counts against, of the kinds of which there are any or of EVERY_KIND.
local function cap_names(queue, tenant, downstream, of)
  local k, names = of or gate_kinds(), {}
  if k.q then names[#names + 1] = 'q:' .. queue end
  if k.t then names[#names + 1] = 't:' .. tenant end
  if k.u then names[#names + 1] = 'u:' .. tenant .. ':' .. queue end
  if k.d and downstream ~= '' then names[#names + 1] = 'd:' .. downstream end
  return names
end
