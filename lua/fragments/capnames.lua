-- @include gate
-- capnames: the caps that a job in a ready stream counts against.
local function cap_names(queue, tenant, downstream)
  return { 'q:' .. queue, 't:' .. tenant, 'u:' .. tenant .. ':' .. queue, downstream ~= '' and 'd:' .. downstream or nil }
end
