-- @include state
-- gates_any reports whether there are gates at all; without them nothing of gate.lua costs a call. It needs `ng` loaded.
local function gates_any()
  return (st.ng or '') ~= ''
end

-- caps_version names the caps that there are, as `ng` counts them, and their version; '' where there are none. What is
-- dispatched without counting against one carries it: while it is the same, none counts that job.
local function caps_version()
  return (string.gsub(match(st.ng or '', '^[^|]*v%d+') or '', '[brs]%d+', ''))
end
