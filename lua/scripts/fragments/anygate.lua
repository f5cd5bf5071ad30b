-- @include state
-- gates_any reports whether there are gates at all; without them nothing of gate.lua costs a call. It needs `ng` loaded.
local function gates_any()
  return (call.st.ng or '') ~= ''
end

-- caps_version names the caps that there are, as `ng` counts them, their version, and that of the policy, with which caps of an older
-- release come; '' where there are none. What is dispatched without counting against one carries it: while it is the same, none
-- counts that job. It needs `pv` loaded, too.
local function caps_version()
  local counts = match(call.st.ng or '', '^[^|]*v%d+')
  return counts and string.gsub(counts, '[brs]%d+', '') .. '.' .. (call.st.pv or 0) or ''
end
