-- @include freed
-- @include record
-- entry: entries of a ready stream. Whoever removes one gives its units back to the gates and the room to the
-- pool. XACK and XCLAIM check no owner, so a lease is the worker's, and an entry that left is gone for all.
-- `started` maps a job that was lost before to the worker whose handler has begun it again: only then is the job under
-- suspicion if that worker is lost too.
local STARTED = P .. 'started'

-- entry_release gives back the units of a job that leaves a ready stream.
local function entry_release(key, rec)
  if byte(rec, 6) > 0 then redis.call('HDEL', STARTED, key) end
  if not gates_any() then return end
  local tenant = key_split(key)
  local r = record_read(rec)
  for _, name in pairs(gate_names(r.queue, tenant, sub(r.lane, 2))) do
    if gate(name) then
      gate_hold(name, -1)
      freed[name] = true
    end
  end
end
