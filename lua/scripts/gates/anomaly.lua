-- anomaly keeps rates that are not usual, each once while it goes on.
-- KEYS[1] state  hash; the partition's other keys share its hash tag and are named after it
-- ARGV[1] now  microseconds, "" for Redis TIME
-- ARGV[2] quiet  seconds for which one must not have been noted to be kept anew
-- ARGV[3] most  how many are kept
-- ARGV[4] ...  of each: kind, of, name, minute in seconds, rate, usual, deviation, score
-- Reply {"noted", how many were kept}
-- Never keeps one that goes on twice, so it may be sent again.
-- @flag allow-oom
-- @relief
function scripts.anomaly(KEYS, ARGV)
  local STATE, NOW, QUIET, MOST = KEYS[1], ARGV[1], ARGV[2], ARGV[3]
  local FIRST_AT, SIZE = 4, 8
  local now, kept = now_us(NOW), 0
  call_begin(now, {})
  for at = FIRST_AT, #ARGV, SIZE do
    local kind, of, name, minute, rate, usual, deviation, score = unpack(ARGV, at, at + SIZE - 1)
    local alarm = call.prefix .. 'alarm:' .. kind .. ':' .. of .. ':' .. name
    local goes_on = redis.call('EXISTS', alarm) == 1
    redis.call('SET', alarm, '', 'EX', QUIET)
    if not goes_on then
      redis.call('XADD', keys.anomalies, 'MAXLEN', MOST, '*', 'at', format('%d', now), 'kind', kind, 'of', of, 'name', name, 'minute', minute,
        'rate', rate, 'usual', usual, 'deviation', deviation, 'score', score)
      state_add('anom:' .. kind, 1)
      kept = kept + 1
    end
  end
  state_write()
  return { 'noted', format('%d', kept) }
end
