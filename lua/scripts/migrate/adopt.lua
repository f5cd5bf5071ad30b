-- adopt takes over a downstream's breaker from another partition, where this one has none (headgate migrate).
-- KEYS[1] state  hash; the partition's other keys share its hash tag and are named after it
-- ARGV[1] now  microseconds, "" for Redis TIME
-- ARGV[2] downstream  name
-- ARGV[3] ...  fields and values of the breaker's hash
-- Reply {"adopted"} or {"known"}
-- Never takes over probes: nobody waits for them any more.
-- @flag allow-oom
-- @relief
function scripts.adopt(KEYS, ARGV)
  local STATE, NOW, DOWNSTREAM, FIELDS_AT = KEYS[1], ARGV[1], ARGV[2], 3
  local now = now_us(NOW)

  call_begin(now, {})
  local key = call.prefix .. 'br:' .. DOWNSTREAM
  if redis.call('EXISTS', key) == 1 then return { 'known' } end
  local fields = {}
  for i = FIELDS_AT, #ARGV, 2 do
    if sub(ARGV[i], 1, 2) ~= 'p:' then
      fields[#fields + 1] = ARGV[i]
      fields[#fields + 1] = ARGV[i + 1]
    end
  end
  redis.call('HSET', key, unpack(fields))
  redis.call('SADD', keys.breakers, DOWNSTREAM)
  local f = breaker.open(DOWNSTREAM)
  f.was = {}
  breaker.save(f, now, {})
  breaker_follow(f)
  freed_wake(now)
  fill(now)
  return { 'adopted' }
end
