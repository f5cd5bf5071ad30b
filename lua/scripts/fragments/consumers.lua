-- @include reclaim
-- consumers: those of a pool's group are compared with the registrations.
local AUDIT_EVERY = 15000000

-- consumers_audit takes back what a consumer holds that is not registered: a read that was on its way when its
-- worker's lease ended makes the consumer anew.
local function consumers_audit(id, now)
  local pool = pool_open(id)
  if not pool then return end
  for _, info in ipairs(redis.call('XINFO', 'CONSUMERS', pool.key, GROUP)) do
    local name, pending
    for i = 1, #info, 2 do
      if info[i] == 'name' then name = info[i + 1] elseif info[i] == 'pending' then pending = info[i + 1] end
    end
    if redis.call('HEXISTS', keys.workers, name) == 0 then
      if pending > 0 and not consumer_return(pool, name, true, now) then
        return due_add(keys.due, now, 'c' .. id)
      end
      consumer_end(pool, name)
    end
  end
  pool_close(pool)
  if call.pools[id] then due_add(keys.due, now + AUDIT_EVERY, 'c' .. id) end
end
