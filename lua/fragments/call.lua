-- @include fill
-- @include time
-- call: what every script begins with. The first write of a script is one that a full Redis allows, which
-- frees the rest of the script from the check: only admit, which adds data, begins with one that it refuses.
local function call_begin(now, fields)
  for _, field in ipairs({ 't', 'bt', 'dc', 'step', 'seq', 'gen', 'en', 'ng', 'nw', 'nd' }) do
    fields[#fields + 1] = field
  end
  state_load(fields)
  clock_advance(now)
end

local function call_relieve()
  redis.call('DEL', P .. 'relief')
end
