-- @include jobs
-- leave: the way out of a job that owns nothing but its record. It goes from the jobs hash into the set of ended ids,
-- and a counter tells why. letter.lua has the other ways.
function reset.leave() call.ended, call.ended_keys = {}, {} end

local function leave_plain(key, counter)
  state_add('left:' .. counter, 1)
  call.ended[#call.ended + 1] = key
end

-- leave_write ends the jobs named since the last call. It needs `gen` and `en` loaded.
local function leave_write()
  if #call.ended == 0 then return end
  redis.call('HDEL', keys.jobs, unpack(call.ended))
  redis.call('SADD', ended_key(state_num('gen')), unpack(call.ended))
  state_add('en', #call.ended)
  if #call.ended_keys > 0 then redis.call('UNLINK', unpack(call.ended_keys)) end
  call.ended, call.ended_keys = {}, {}
end
