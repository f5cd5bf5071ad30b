-- @include state
-- relief: a first write that a full Redis allows, which frees the rest of the script from the check. Only admit,
-- which adds data, begins with one that a full Redis refuses, and finish with XACK, which it allows.
function reset.relief() redis.call('DEL', keys.relief) end
