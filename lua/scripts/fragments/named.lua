-- @include state
-- queue_known reports whether the policy names a queue or a worker serves it.
local function queue_known(name)
  return state_get('cfg:' .. name) or state_get('pools:' .. name)
end
