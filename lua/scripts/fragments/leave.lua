-- @include jobs
-- leave: the way out of a job that owns nothing but its record. It goes from the jobs hash into the set of ended ids,
-- and a counter tells why. letter.lua has the other ways.
local ended, ended_keys = {}, {}

local function leave_plain(key, counter)
  state_add('left:' .. counter, 1)
  ended[#ended + 1] = key
end

-- leave_write ends the jobs named since the last call. It needs `gen` and `en` loaded.
local function leave_write()
  if #ended == 0 then return end
  redis.call('HDEL', JOBS, unpack(ended))
  redis.call('SADD', ended_key(state_num('gen')), unpack(ended))
  state_add('en', #ended)
  if #ended_keys > 0 then redis.call('UNLINK', unpack(ended_keys)) end
  ended, ended_keys = {}, {}
end
