-- @include jobs
-- leave: the ways out. A job that ends goes from the jobs hash into the set of ended ids, and a counter tells
-- why; a dead letter stays in the jobs hash, stands in `dead` by its time, and `why` keeps its reason.
local DEAD, WHY = P .. 'dead', P .. 'why'
local DEAD_CAP = 100000
local ended, ended_large = {}, {}

local function leave(key, counter, large)
  state_add('left:' .. counter, 1)
  ended[#ended + 1] = key
  if large then ended_large[#ended_large + 1] = P .. 'large:' .. key end
end

-- dead_letter moves at most one older letter out for each that comes, so the store stays within its cap.
local function dead_letter(key, reason, text, now)
  redis.call('ZADD', DEAD, format('%d', now), key)
  redis.call('HSET', WHY, key, reason .. '|' .. text)
  state_add('dead:' .. reason, 1)
  if state_add('nd', 1) > DEAD_CAP then
    local oldest = redis.call('ZPOPMIN', DEAD)[1]
    redis.call('HDEL', WHY, oldest)
    state_add('nd', -1)
    leave(oldest, 'purged', true)
  end
end

-- leave_write ends the jobs named since the last call. It needs `gen` and `en` loaded.
local function leave_write()
  if #ended == 0 then return end
  redis.call('HDEL', JOBS, unpack(ended))
  redis.call('SADD', ended_key(state_num('gen')), unpack(ended))
  state_add('en', #ended)
  if #ended_large > 0 then redis.call('UNLINK', unpack(ended_large)) end
  ended, ended_large = {}, {}
end
