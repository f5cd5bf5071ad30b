-- load keeps how busy services are, as the point of their history to which now belongs.
-- KEYS[1] state  hash; the partition's other keys share its hash tag and are named after it
-- ARGV[1] now  microseconds, "" for Redis TIME
-- ARGV[2] owner  of the timer lease
-- ARGV[3] apart  microseconds from one point to the next
-- ARGV[4] keep  seconds that a minute of points is kept
-- ARGV[5] ...  of each service: its name, and a text
-- Reply {"noted"}, {"held"} where another has the timer lease, or {"none"} where the policy does not ask for it
-- Never keeps two points of a service in one step: the later one counts.
-- @flag allow-oom
-- @relief
function scripts.load(KEYS, ARGV)
  local STATE, NOW, OWNER, APART, KEEP = KEYS[1], ARGV[1], ARGV[2], tonumber(ARGV[3]), ARGV[4]
  local SERVICES_AT, MINUTE = 5, 60000000
  local now = now_us(NOW)
  call_begin(now, { 'promoter', 'load' })
  if match(state_get('promoter') or '', '^%d+|(.*)$') ~= OWNER then return { 'held' } end
  if not state_get('load') then return { 'none' } end
  local key, point = call.prefix .. 'loads:' .. format('%d', math.floor(now / MINUTE)), format('%d:', math.floor(now % MINUTE / APART))
  local fields = {}
  for at = SERVICES_AT, #ARGV, 2 do
    fields[#fields + 1] = point .. ARGV[at]
    fields[#fields + 1] = ARGV[at + 1]
  end
  redis.call('HSET', key, unpack(fields))
  redis.call('EXPIRE', key, KEEP)
  state_write()
  return { 'noted' }
end
