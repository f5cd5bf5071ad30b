-- @include leave
-- rotate: the older generation of ended ids goes when it is a window old.
local DEFAULT_WINDOW = 30000000

-- ended_rotate needs `dc`, `rot`, `gen`, `en` and `dw` (the window in microseconds) loaded.
local function ended_rotate()
  local window = state_num('dw') > 0 and state_num('dw') or DEFAULT_WINDOW
  if state_num('dc') - state_num('rot') < window then return end
  local generation = state_num('gen')
  redis.call('UNLINK', ended_key(generation - 1))
  state_set('gen', generation + 1)
  state_set('eo', state_num('en'))
  state_set('en', 0)
  state_set('rot', state_num('dc'))
end
