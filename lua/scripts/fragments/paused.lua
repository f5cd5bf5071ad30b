-- @include state
-- paused: paused_then changes the cap that a pause leaves behind.
local function paused_then(g, limit)
  local until_us, _, reason = match(g.rest, '^(%d+)|([^|]*)|(.*)$')
  g.rest = until_us .. '|' .. limit .. '|' .. reason
end
