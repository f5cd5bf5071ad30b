-- @include time
-- call: what every script begins with.
local function call_begin(now, fields)
  for _, field in ipairs({ 't', 'bt', 'dc', 'step', 'seq', 'gen', 'en', 'ng', 'nm', 'nh', 'nw', 'nd', 'nc', 'nl', 'nb' }) do
    fields[#fields + 1] = field
  end
  state_load(fields)
  clock_advance(now)
end
