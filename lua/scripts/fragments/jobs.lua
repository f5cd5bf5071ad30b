-- @include state
-- jobs: the jobs hash, and the sets of ended ids: two generations, `en` and `eo` their sizes; the older goes when it
-- is a window old.
local JOBS = P .. 'jobs'

local function ended_key(generation)
  return P .. 'ended:' .. format('%d', generation)
end
