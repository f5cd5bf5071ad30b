-- @include fill
-- freed: gates that have a unit more, or are gone, wake their waiters before the fill: name → true, or the line from which on.
function reset.freed() call.freed, call.shelf_freed = {}, {} end

-- shelves_pass_on lets a lane come back for each entry that left, as far as the share goes. shelf_freed counts them by
-- pool and downstream.
local function shelves_pass_on(now)
  local names = {}
  for name in pairs(call.shelf_freed) do names[#names + 1] = name end
  table.sort(names)
  for _, name in ipairs(names) do
    local id, downstream = match(name, '^([^:]*):(.*)$')
    local pool = state_num('nh') > 0 and pool_open(id)
    local units = pool and math.min(call.shelf_freed[name], share_left(pool, downstream)) or 0
    if units > 0 then gate_wake('h:' .. downstream, now, units) end
  end
  call.shelf_freed = {}
end

local function freed_wake(now)
  local names = {}
  for name in pairs(call.freed) do names[#names + 1] = name end
  table.sort(names)
  for _, name in ipairs(names) do gate_wake(name, now, nil, nil, call.freed[name] ~= true and call.freed[name] or nil) end
  call.freed = {}
  shelves_pass_on(now)
end
