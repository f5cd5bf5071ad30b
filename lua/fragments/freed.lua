-- @include fill
-- freed: gates that have a unit more, or are gone, wake their waiters before the fill.
local freed = {}

local function freed_wake(now)
  local names = {}
  for name in pairs(freed) do names[#names + 1] = name end
  table.sort(names)
  for _, name in ipairs(names) do gate_wake(name, now) end
  freed = {}
end
