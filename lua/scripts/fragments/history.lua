-- @include record
-- history: what became of a job's deliveries that did not complete it, the last HISTORY_CAP of them in a LIST log:KEY:
-- outcome|time|time it ran|worker|text, times in microseconds.
local HISTORY_CAP = 20

-- history_add returns the record that says so; the caller stores it.
local function history_add(key, rec, outcome, ran, worker, text, now)
  local list = call.prefix .. 'log:' .. key
  redis.call('RPUSH', list, format('%s|%d|%d|%s|%s', outcome, now, ran, worker, text))
  redis.call('LTRIM', list, -HISTORY_CAP, -1)
  return record_flagged(rec, HISTORY)
end
