-- pressure notes how much a queue is pressed, until it is measured again or for a time at most.
-- KEYS[1] state  hash; the partition's other keys share its hash tag and are named after it
-- ARGV[1] now  microseconds, "" for Redis TIME
-- ARGV[2] queue
-- ARGV[3] level  1 to 5
-- ARGV[4] score  thousandths
-- ARGV[5] life  microseconds
-- ARGV[6] hint  microseconds that callers should wait
-- ARGV[7] parts  of the score, for people
-- ARGV[8] owner  of the timer lease, where number is 0
-- ARGV[9] version  of the policy by which it is measured, where number is 0
-- ARGV[10] number  0 in the first partition, which counts; in others what it replied there
-- Reply {"noted", number} or {"held", 0}, {"stale", version in force} or {"none", 0}, where the policy does not have it measured
-- Never takes a number that is older than the last.
-- @flag allow-oom
-- @relief
function scripts.pressure(KEYS, ARGV)
  local STATE, NOW, QUEUE, LEVEL, SCORE = KEYS[1], ARGV[1], ARGV[2], ARGV[3], ARGV[4]
  local LIFE, HINT, PARTS, OWNER, VERSION, NUMBER = tonumber(ARGV[5]), ARGV[6], ARGV[7], ARGV[8], ARGV[9], tonumber(ARGV[10])
  local now, field = now_us(NOW), 'pressure:' .. QUEUE
  call_begin(now, { 'promoter', field })
  if NUMBER == 0 then
    if match(state_get('promoter') or '', '^%d+|(.*)$') ~= OWNER then return { 'held', '0' } end
    if (state_get('pv') or '0') ~= VERSION then return { 'stale', state_get('pv') or '0' } end
  end
  local last = match(state_get(field) or '', '^%d|%d+|%d+|%d+|(%d+)|')
  if not last then return { 'none', '0' } end
  local number = NUMBER == 0 and last + 1 or NUMBER
  if number < tonumber(last) then return { 'noted', last } end
  state_set(field, format('%s|%s|%d|%s|%d|%s', LEVEL, SCORE, now + LIFE, HINT, number, PARTS))
  state_write()
  return { 'noted', format('%d', number) }
end
