-- demand tells what is runnable for a pool in this partition, so that its workers can share out their slots.
-- KEYS[1] state  hash; the partition's other keys share its hash tag and are named after it
-- ARGV[1] pool  id
-- ARGV[2] queues  queue=weight, by commas, in order
-- Reply {entries of the pool's ready stream, then of each queue, by spaces, of each class its weight in the pattern and the sum
--   of its runnable tenants' weights, by a colon}
-- Never writes.
function scripts.demand(KEYS, ARGV)
  local STATE, POOL, QUEUES = KEYS[1], ARGV[1], ARGV[2]

  state_load({ 'ng' })
  local out = { format('%d', redis.call('XLEN', call.prefix .. 'ready:' .. POOL)) }
  for name in string.gmatch(QUEUES, '([^=,]+)=%d+') do
    out[#out + 1] = queue_weigh(queue_open(name), gate_kinds().q and gate_closed('q:' .. name))
  end
  return out
end
