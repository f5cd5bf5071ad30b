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
