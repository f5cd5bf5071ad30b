-- @include queue
-- tally: what queues did in this call is written once.
local RATE_SPAN = 10000000

-- queue_tally folds the dispatches of this call into the rate, an exponential average over RATE_SPAN.
local function queue_tally(q, now)
  if q.dispatched == 0 then return end
  if q.since == 0 or now - q.stamp > 3 * RATE_SPAN or now < q.stamp then
    q.rate, q.since, q.stamp = 0, now, now
  end
  q.rate = q.rate * math.exp(-(now - q.stamp) / RATE_SPAN) + q.dispatched / RATE_SPAN
  q.stamp, q.dispatched = now, 0
end

local function queue_write(now)
  for name, q in pairs(queues) do
    if q.touched then
      if q.fresh then
        state_add('nq', 1)
        q.fresh = false
      end
      queue_tally(q, now)
      local parts = { q.cur, q.left, format('%.9g', q.rate), format('%d', q.stamp), format('%d', q.since) }
      for c = 1, q.n do
        parts[#parts + 1] = format(q.V[c] % 1 == 0 and '%d' or '%.17g', q.V[c])
        parts[#parts + 1] = format('%d', q.waiting[c])
      end
      state_set('q:' .. name, table.concat(parts, '|'))
      q.touched = false
    end
  end
end
