-- @include begin
-- call: what every script begins with that moves jobs.
local function call_begin(now, fields)
  for _, field in ipairs({ 'seq', 'gen', 'en', 'ng', 'nm', 'nh', 'nw', 'nd', 'nc', 'nl', 'nb', 'pv', 'wl' }) do
    fields[#fields + 1] = field
  end
  clock_begin(now, fields)
end
