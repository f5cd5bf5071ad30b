-- @include state
-- suspended: names under which nothing is admitted, HASH name → until|reason, microseconds, 0 for ever. Names are those of
-- the gates of a queue, a tenant, a tenant in a queue. `np` counts them.
local SUSPENDED = P .. 'suspended'
