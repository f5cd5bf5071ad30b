-- jobs: the jobs hash, and the sets of ended ids: two generations, `en` and `eo` their sizes; the older goes when it
-- is a window old.

local function ended_key(generation)
  return call.prefix .. 'ended:' .. format('%d', generation)
end

-- leave: the way out of a job that owns nothing but its record. It goes from the jobs hash into the set of ended ids,
-- and a counter tells why. letter.lua has the other ways.
function reset.ended() call.ended, call.ended_keys, call.ended_why = {}, {}, {} end

local function leave_plain(key, counter)
  local ended, why = call.ended, call.ended_why
  ended[#ended + 1], why[counter] = key, (why[counter] or 0) + 1
end

-- leave_write ends the jobs named since the last call.
local function leave_write()
  if #call.ended == 0 then return end
  redis.call('HDEL', keys.jobs, unpack(call.ended))
  redis.call('SADD', ended_key(state_num('gen')), unpack(call.ended))
  state_add('en', #call.ended)
  for counter, n in pairs(call.ended_why) do state_add('left:' .. counter, n) end
  if #call.ended_keys > 0 then redis.call('UNLINK', unpack(call.ended_keys)) end
  call.ended, call.ended_keys, call.ended_why = {}, {}, {}
end

-- rotate: the older generation of ended ids goes when it is a window old.
local DEFAULT_WINDOW = 30000000

-- ended_rotate goes by `dw`, the window in microseconds.
local function ended_rotate()
  local window = state_num('dw') > 0 and state_num('dw') or DEFAULT_WINDOW
  if state_num('dc') - state_num('rot') < window then return end
  local generation = state_num('gen')
  redis.call('UNLINK', ended_key(generation - 1))
  state_set('gen', generation + 1)
  state_set('eo', state_num('en'))
  state_set('en', 0)
  state_set('rot', state_num('dc'))
end
