-- library: what every script and fragment knows by these names.
--   call     what one call has: each of its fields is set at its beginning, by the `reset` functions of the fragments that its
--            script is made of, so that nothing of a call that ended, or broke off, is left for the next
--   keys     names of keys of the partition: keys.jobs is its prefix and "jobs". They outlast a call, for the next on the same
--            partition. KEY_NAMES has all that any file names, filled in when the scripts are put together
--   reset    of each fragment that has something to set, a function that sets it
--   scripts  the scripts, by name
local KEY_NAMES = {}
local call, keys, reset, scripts, shared = {}, {}, {}, {}, {}

-- call_open begins a call on the partition whose state is named.
local function call_open(state, argv)
  local prefix = string.sub(state, 1, -6)
  if prefix ~= call.prefix then
    for i = 1, #KEY_NAMES do keys[KEY_NAMES[i]] = prefix .. KEY_NAMES[i] end
  end
  call.state, call.prefix, call.argv = state, prefix, argv
end

-- memory returns what remembers what parse makes of texts: the last CACHED of them, for all calls of the library. Nobody may change
-- what was parsed. It decides nothing: a text that is forgotten is parsed again.
local CACHED = 256
local function memory(parse)
  return { parse = parse, known = {}, size = 0 }
end

local function remembered(of, text)
  local value = of.known[text]
  if value == nil then
    if of.size == CACHED then of.known, of.size = {}, 0 end
    value = of.parse(text)
    of.known[text], of.size = value, of.size + 1
  end
  return value
end
