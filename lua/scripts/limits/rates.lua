-- rates keeps what was decided of queues in ten minutes, as a point of their history.
-- KEYS[1] state  hash; the partition's other keys share its hash tag and are named after it
-- ARGV[1] now  microseconds, "" for Redis TIME
-- ARGV[2] owner  of the timer lease
-- ARGV[3] day  counted from 1970
-- ARGV[4] point  of the day, from 0
-- ARGV[5] keep  seconds that a day is kept
-- ARGV[6] most  largest number of queues of a day
-- ARGV[7] ...  of each queue: its name, jobs admitted, jobs refused
-- Reply {"noted"}, {"held"} where another has the timer lease, or {"none"} where the policy has no rates watched
-- Never keeps two points of a queue at a time: the later one counts.
-- @flag allow-oom
-- @relief
-- with_point returns points with one in its place. Those before it that are not there are zeros.
local function with_point(points, at, one)
  local from = at * #one
  return sub(points, 1, from) .. string.rep('\0', from - #points) .. one .. sub(points, from + #one + 1)
end

function scripts.rates(KEYS, ARGV)
  local STATE, NOW, OWNER, DAY, POINT, KEEP, MOST = KEYS[1], ARGV[1], ARGV[2], ARGV[3], tonumber(ARGV[4]), ARGV[5], tonumber(ARGV[6])
  local QUEUES_AT, KNOWN, CROWDED = 7, '*', '!' -- No queue is called so.
  call_begin(now_us(NOW), { 'promoter', 'anom' })
  if match(state_get('promoter') or '', '^%d+|(.*)$') ~= OWNER then return { 'held' } end
  if not state_get('anom') then return { 'none' } end
  local key, names = call.prefix .. 'rates:' .. DAY, { KNOWN, CROWDED }
  for at = QUEUES_AT, #ARGV, 3 do names[#names + 1] = ARGV[at] end
  local kept = redis.call('HMGET', key, unpack(names))
  local room = MOST - redis.call('HLEN', key) + (kept[1] and 1 or 0) + (kept[2] and 1 or 0)
  local fields = { KNOWN, with_point(kept[1] or '', POINT, '\1') }
  for i = 3, #names do
    local at = QUEUES_AT + 3 * (i - 3)
    if kept[i] or room > 0 then
      if not kept[i] then room = room - 1 end
      fields[#fields + 1] = names[i]
      fields[#fields + 1] = with_point(kept[i] or '', POINT, struct_pack('>I4I4', tonumber(ARGV[at + 1]), tonumber(ARGV[at + 2])))
    elseif not kept[2] then
      kept[2] = '1'
      fields[#fields + 1] = CROWDED
      fields[#fields + 1] = '1'
    end
  end
  redis.call('HSET', key, unpack(fields))
  redis.call('EXPIRE', key, KEEP)
  state_write()
  return { 'noted' }
end
