-- @include letter
-- cancelled: jobs that were cancelled while a worker ran them, HASH job key → worker|token|reason. The worker hears of
-- it with its heartbeat; whatever becomes of the delivery, short of completion, then ends the job. `nc` counts them.

-- cancelled_take reports whether a job that leaves a ready stream was cancelled, and forgets it.
local function cancelled_take(key)
  if state_num('nc') == 0 or redis.call('HDEL', keys.cancelled, key) == 0 then return false end
  state_add('nc', -1)
  return true
end
