-- @include record
-- history: what became of a job's deliveries that did not complete it, the last HISTORY_CAP of them in a LIST log:KEY:
-- outcome|time|time it ran|worker|text, times in microseconds.
local HISTORY_CAP = 20

local function record_flagged(rec, bit)
  if record_has(rec, bit) then return rec end
  return sub(rec, 1, 1) .. char(byte(rec, 2) + bit) .. sub(rec, 3)
end

-- history_add returns the record that says so; the caller stores it.
local function history_add(key, rec, outcome, ran, worker, text, now)
  local list = P .. 'log:' .. key
  redis.call('RPUSH', list, format('%s|%d|%d|%s|%s', outcome, now, ran, worker, text))
  redis.call('LTRIM', list, -HISTORY_CAP, -1)
  return record_flagged(rec, HISTORY)
end
