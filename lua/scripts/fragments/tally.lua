-- @include queue
-- tally: what queues did in this call is written once.
local PACE_SPAN, PACE_STEP = 32, 3

-- queue_tally folds the dispatches of this call into the pace: an exponential average over PACE_SPAN dispatches of
-- the time between two, counted only while the queue is busy: jobs wait for room. An idle queue says nothing of how
-- fast it could be, nor does one whose jobs all stand behind gates. A time counts as PACE_STEP times the average at
-- most, or one pause would stand for many dispatches.
local function queue_tally(q, now)
  if q.dispatched > 0 and q.stamp > 0 and now > q.stamp then
    local pace = (now - q.stamp) / q.dispatched
    local old = q.pace > 0 and math.exp(-q.dispatched / PACE_SPAN) or 0
    if q.pace > 0 then pace = math.min(pace, PACE_STEP * q.pace) end
    q.pace = q.pace * old + pace * (1 - old)
  end
  if not q.busy then
    q.stamp = 0
  elseif q.stamp == 0 or q.dispatched > 0 or now < q.stamp then
    q.stamp = now
  end
  q.dispatched = 0
end

local function queue_write(now)
  for name, q in pairs(call.queues) do
    if q.touched then
      if q.fresh then
        state_add('nq', 1)
        q.fresh = false
      end
      queue_tally(q, now)
      local parts = { q.cur, q.left, format('%.6g', q.pace), format('%d', q.stamp) }
      for c = 1, q.n do
        parts[#parts + 1] = format(q.V[c] % 1 == 0 and '%d' or '%.17g', q.V[c])
        parts[#parts + 1] = format('%d', q.waiting[c])
      end
      state_set('q:' .. name, table.concat(parts, '|'))
      q.touched = false
    end
  end
end
