-- @include fill
-- worker: registrations.
--   workers HASH worker → pool|slots|lease

local function worker_read(worker)
  local v = redis.call('HGET', keys.workers, worker)
  if not v then return nil end
  local pool, slots, lease = match(v, '^([^|]*)|(%d+)|(%d+)$')
  return { pool = pool, slots = tonumber(slots), lease = tonumber(lease) }
end
