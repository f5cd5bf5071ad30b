-- @include state
-- holds: HASH POOL:DOWNSTREAM → how many entries of the pool's ready stream call the downstream.
function reset.holds() call.holds, call.hold_changes = {}, {} end

local function hold_add(pool_id, downstream, n)
  if downstream == '' then return end
  local name = pool_id .. ':' .. downstream
  call.hold_changes[name] = (call.hold_changes[name] or 0) + n
end

local function hold_count(pool_id, downstream)
  local name = pool_id .. ':' .. downstream
  if not call.holds[name] then call.holds[name] = tonumber(redis.call('HGET', keys.holds, name) or 0) end
  return call.holds[name] + (call.hold_changes[name] or 0)
end

local function holds_write()
  for name, n in pairs(call.hold_changes) do
    if n ~= 0 and redis.call('HINCRBY', keys.holds, name, n) <= 0 then redis.call('HDEL', keys.holds, name) end
  end
  call.holds, call.hold_changes = {}, {}
end
