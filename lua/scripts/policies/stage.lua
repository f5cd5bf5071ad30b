-- stage begins an edit of the policy that is too large for one script. What it is to do was written before, under the edit's name:
-- the hash edit:EDIT has what policy has as arguments, and a, c, the numbers of portions, and at, the next one; the list moves:EDIT has
-- the portions, a before the version changes, what changes with it, and c after it; undo:EDIT takes the first a back.
-- KEYS[1] state  hash; the partition's other keys share its hash tag and are named after it
-- ARGV[1] now  microseconds, "" for Redis TIME
-- ARGV[2] expected  version that is in force
-- ARGV[3] edit  names it
-- Reply {"begun"} also where it is under way, {"stored"} where it has ended, {"conflict", version in force},
--   {"editing", another edit} or {"classes", queue}
-- Never changes what dispatch or admission know: step does.
-- @flag allow-oom
-- @relief
function scripts.stage(KEYS, ARGV)
  local STATE, NOW, EXPECTED, EDIT = KEYS[1], ARGV[1], ARGV[2], ARGV[3]
  local now = now_us(NOW)
  call_begin(now, { 'pv', 'pe', 'pg', 'pools' })
  local current, under_way = state_get('pv') or '0', state_get('pg')
  if under_way then return { under_way == EDIT and 'begun' or 'editing', under_way } end
  local f = edit_read(EDIT, { 'a', 'edit', 'version' })
  if current == f.version and state_get('pe') == f.edit then return { 'stored' } end
  if current ~= EXPECTED then return { 'conflict', current } end
  local taken = settings_taken(portion_read('moves:' .. EDIT, tonumber(f.a)))
  if taken then return { 'classes', taken } end
  for _, key in ipairs({ 'edit:', 'moves:', 'undo:' }) do redis.call('PERSIST', call.prefix .. key .. EDIT) end
  redis.call('HSET', call.prefix .. 'edit:' .. EDIT, 'expected', EXPECTED)
  state_set('pg', EDIT)
  state_write()
  return { 'begun' }
end
