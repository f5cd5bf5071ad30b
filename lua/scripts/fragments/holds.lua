-- @include state
-- holds: HASH POOL:DOWNSTREAM → how many entries of the pool's ready stream call the downstream.
local HOLDS = P .. 'holds'
local holds, hold_changes = {}, {}

local function hold_add(pool_id, downstream, n)
  if downstream == '' then return end
  local name = pool_id .. ':' .. downstream
  hold_changes[name] = (hold_changes[name] or 0) + n
end

local function hold_count(pool_id, downstream)
  local name = pool_id .. ':' .. downstream
  if not holds[name] then holds[name] = tonumber(redis.call('HGET', HOLDS, name) or 0) end
  return holds[name] + (hold_changes[name] or 0)
end

local function holds_write()
  for name, n in pairs(hold_changes) do
    if n ~= 0 and redis.call('HINCRBY', HOLDS, name, n) <= 0 then redis.call('HDEL', HOLDS, name) end
  end
  holds, hold_changes = {}, {}
end
