-- carry adds what a partition has counted and remembered to another one's (headgate migrate).
-- KEYS[1] state  hash; the partition's other keys share its hash tag and are named after it
-- ARGV[1] now  microseconds, "" for Redis TIME
-- ARGV[2] clock  that of the buckets there, microseconds, for a partition that has not begun; "" for none
-- ARGV[3] from  names what the counters are carried from; "" for none
-- ARGV[4] counters  number of C
-- ARGV[5] ...  C times field of the state, number to add; then keys of jobs that ended there
-- Reply {"carried"}
-- Never adds the counters of one partition twice.
-- @flag allow-oom
-- @relief
function scripts.carry(KEYS, ARGV)
  local STATE, NOW, CLOCK, FROM, COUNTERS = KEYS[1], ARGV[1], ARGV[2], ARGV[3], tonumber(ARGV[4])
  local COUNTERS_AT = 5
  local now = now_us(NOW)

  state_load({})
  if CLOCK ~= '' and state_num('t') == 0 then
    state_set('t', now)
    state_set('bt', tonumber(CLOCK))
  end
  local at = COUNTERS_AT + 2 * COUNTERS
  if FROM ~= '' and not state_get('carried:' .. FROM) then
    for i = COUNTERS_AT, at - 2, 2 do state_add(ARGV[i], tonumber(ARGV[i + 1])) end
    state_set('carried:' .. FROM, '1')
  end
  for i = at, #ARGV do state_add('en', redis.call('SADD', ended_key(state_num('gen')), ARGV[i])) end
  state_write()
  return { 'carried' }
end
