-- @include queue
-- weigh: how much is runnable. Of more than SAMPLE tenants with weights it looks at as many, at random, and takes the others
-- for alike. It needs `nw` loaded.
local SAMPLE = 64

-- tenants_weigh returns the sum of the weights of a class's runnable tenants.
local function tenants_weigh(q, c)
  local act = call.prefix .. 'act:' .. c - 1 .. ':' .. q.name
  local n = redis.call('ZCARD', act)
  if n == 0 or state_num('nw') == 0 then return n end
  local members = redis.call('ZRANDMEMBER', act, SAMPLE)
  local class = q.names[c] .. ':'
  local fields, sum = { class }, 0
  for _, member in ipairs(members) do fields[#fields + 1] = class .. string.sub(member, 9) end
  local weights = redis.call('HMGET', keys.weights, unpack(fields))
  for i = 2, #fields do sum = sum + tonumber(weights[i] or weights[1] or 1) end
  return sum * n / #members
end

-- queue_weigh tells of each class of a queue, by spaces, its weight in the pattern and what is runnable, by a colon; of a
-- queue that is shut, that nothing is.
local function queue_weigh(q, shut)
  local classes = {}
  for c = 1, q.n do classes[c] = format('%d:%.17g', q.w[c], shut and 0 or tenants_weigh(q, c)) end
  return table.concat(classes, ' ')
end
