-- heartbeat extends a worker's lease, and with it the lease of every job that it holds.
-- KEYS[1] state  hash; the partition's other keys share its hash tag and are named after it
-- ARGV[1] now  microseconds, "" for Redis TIME
-- ARGV[2] worker  name
-- ARGV[3] lease  microseconds
-- ARGV[4] load  how busy the worker is; absent where nobody has asked
-- Reply {"extended" | "promote", token and reason of each job that was cancelled while the worker holds it} or {"lost"};
--   promote means that no scheduler holds the timer lease; then, where the policy has workers tell how busy they are, how often in
--   microseconds
-- Never brings back a lease that has been taken back, also where that goes on, and keeps no load that nobody asked for.
function scripts.heartbeat(KEYS, ARGV)
  local STATE, NOW, WORKER, LEASE, LOAD = KEYS[1], ARGV[1], ARGV[2], tonumber(ARGV[3]), ARGV[4]
  local LOAD_LIFE = 300 -- seconds
  local now = now_us(NOW)

  state_load({ 'promoter', 'load' })
  redis.call('DEL', keys.relief)
  if match(redis.call('HGET', keys.workers, WORKER) or '|0', '|0$') then return { 'lost' } end
  clock_advance(now)
  redis.call('ZADD', keys.due, 'XX', format('%d', now + LEASE), 'w' .. WORKER)
  state_write()
  local until_us = tonumber(match(state_get('promoter') or '', '^(%d+)|') or 0)
  local reply = { until_us < now and 'promote' or 'extended' }
  if state_num('nc') > 0 then
    local all = redis.call('HGETALL', keys.cancelled)
    for i = 2, #all, 2 do
      local worker, token, reason = match(all[i], '^([^|]*)|([^|]*)|(.*)$')
      if worker == WORKER then
        reply[#reply + 1], reply[#reply + 2] = token, reason
      end
    end
  end
  local asked = state_get('load')
  if asked then
    reply[#reply + 1] = asked
    if LOAD then redis.call('SET', call.prefix .. 'load:' .. WORKER, format('%d|%s', now, LOAD), 'EX', LOAD_LIFE) end
  end
  return reply
end
