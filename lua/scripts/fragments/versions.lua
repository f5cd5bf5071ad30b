-- @include state
-- versions: the last versions of the policy in a hash. Nothing else writes to it. There are at most KEPT_VERSIONS, and of
-- those before the newest at most KEPT_BYTES.
local KEPT_VERSIONS, KEPT_BYTES = 100, 67108864

-- version_keep adds a version. The one in force before it is added too where an older program did not.
local function version_keep(current, version, text)
  if current ~= '0' and redis.call('HEXISTS', keys.policies, current) == 0 then
    redis.call('HSET', keys.policies, current, redis.call('GET', keys.policy) or '')
  end
  redis.call('HSET', keys.policies, version, text)
  local kept, bytes = redis.call('HKEYS', keys.policies), 0
  table.sort(kept, function(a, b) return tonumber(a) > tonumber(b) end)
  for i = 2, #kept do
    bytes = bytes + redis.call('HSTRLEN', keys.policies, kept[i])
    if i > KEPT_VERSIONS or bytes > KEPT_BYTES then redis.call('HDEL', keys.policies, kept[i]) end
  end
end
