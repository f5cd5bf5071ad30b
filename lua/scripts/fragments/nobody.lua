-- @include anygate
-- @include queue
-- nobody: nobody_runs reports whether nobody in the queue is runnable: no job waits, or those that do stand behind gates.
local function nobody_runs(q)
  local waited_for = {}
  for c = 1, q.n do
    if q.waiting[c] > 0 then waited_for[#waited_for + 1] = call.prefix .. 'act:' .. (c - 1) .. ':' .. q.name end
  end
  return not waited_for[1] or gates_any() and redis.call('EXISTS', unpack(waited_for)) == 0
end
