-- @include state
-- audit: a stream with an entry for each change that somebody made to the policy, or to a breaker. Nothing else writes
-- to it. It has at most KEPT_AUDIT entries, and `al` counts those that left.
local AUDIT, KEPT_AUDIT = P .. 'audit', 10000

local function audit_add(fields)
  redis.call('XADD', AUDIT, '*', unpack(fields))
  local gone = redis.call('XTRIM', AUDIT, 'MAXLEN', KEPT_AUDIT)
  if gone > 0 then state_add('al', gone) end
end
