-- @include time
-- begin: what scripts begin with that ask buckets alone.
local function clock_begin(now, fields)
  for _, field in ipairs({ 't', 'bt', 'dc', 'step' }) do fields[#fields + 1] = field end
  state_load(fields)
  clock_advance(now)
end
