-- @include state
-- jobs: the jobs hash, and the sets of ended ids: two generations, `en` and `eo` their sizes; the older goes when it
-- is a window old.

local function ended_key(generation)
  return call.prefix .. 'ended:' .. format('%d', generation)
end
