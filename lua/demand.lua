-- demand tells what is runnable for a pool in this partition, so that its workers can share out their slots.
-- KEYS[1] state  hash; the partition's other keys share its hash tag and are named after it
-- ARGV[1] pool  id
-- ARGV[2] queues  queue=weight, by commas, in order
-- Reply {entries of the pool's ready stream, then of each queue, by spaces, of each class its weight in the pattern and the sum
--   of its runnable tenants' weights, by a colon}
-- Never writes. Of more than SAMPLE tenants with weights it looks at as many, at random, and takes the others for alike.
-- luacheck: ignore 211
local STATE, POOL, QUEUES = KEYS[1], ARGV[1], ARGV[2]
-- @include gate
-- @include queue
local SAMPLE = 64

-- tenants_weigh returns the sum of the weights of a class's runnable tenants.
local function tenants_weigh(q, c)
  local act = P .. 'act:' .. c - 1 .. ':' .. q.name
  local n = redis.call('ZCARD', act)
  if n == 0 or state_num('nw') == 0 then return n end
  local members = redis.call('ZRANDMEMBER', act, SAMPLE)
  local class = q.names[c] .. ':'
  local fields, sum = { class }, 0
  for _, member in ipairs(members) do fields[#fields + 1] = class .. sub(member, 9) end
  local weights = redis.call('HMGET', P .. 'weights', unpack(fields))
  for i = 2, #fields do sum = sum + tonumber(weights[i] or weights[1] or 1) end
  return sum * n / #members
end

state_load({ 'ng', 'nw', 'bt' })
local out = { format('%d', redis.call('XLEN', P .. 'ready:' .. POOL)) }
for name in string.gmatch(QUEUES, '([^=,]+)=%d+') do
  local q, classes = queue_open(name), {}
  local shut = gate_kinds().q and gate_closed('q:' .. name)
  for c = 1, q.n do classes[c] = format('%d:%.17g', q.w[c], shut and 0 or tenants_weigh(q, c)) end
  out[#out + 1] = table.concat(classes, ' ')
end
return out
