-- force lets an operator choose the state of a downstream's breaker, and tells the audit who did.
-- KEYS[1] state  hash; the partition's other keys share its hash tag and are named after it
-- ARGV[1] now  microseconds, "" for Redis TIME
-- ARGV[2] downstream  name
-- ARGV[3] to  "open", "closed" or "reset"
-- ARGV[4] duration  microseconds that it holds, 0 for ever; a reset has none
-- ARGV[5] reason  text that is kept
-- ARGV[6] rules  of a breaker that is made for it, as fragments/breaker.lua has them
-- ARGV[7] author  who it is
-- Reply {"forced" | "more", period}; {"full"} where there are too many breakers for another; {"unknown"} for a reset of
--   none
-- Never touches a job in a worker's hand.
-- @flag allow-oom
-- @relief
function scripts.force(KEYS, ARGV)
  local STATE, NOW, DOWNSTREAM, TO, DURATION = KEYS[1], ARGV[1], ARGV[2], ARGV[3], tonumber(ARGV[4])
  local REASON, RULES, AUTHOR = ARGV[5], ARGV[6], ARGV[7]
  local now = now_us(NOW)

  call_begin(now, {})
  local f = breaker.open(DOWNSTREAM)
  if not f and TO == 'reset' then return { 'unknown' } end
  local gone
  if not f then f, gone = breaker.make(DOWNSTREAM, breaker.rules(RULES), 0, now) end
  if not f then return { 'full' } end
  if gone then breaker_follow(gone) end
  local told = { reason = REASON }
  if TO == 'reset' then
    local was = f.state
    breaker.enter(f, breaker.CLOSED, breaker.RESET, now, nil, told)
    breaker.restart(f)
    f.row, f.ramp = 0, was ~= breaker.CLOSED and 1 or 0
  else
    local until_at = DURATION > 0 and breaker.clock() + DURATION or nil
    breaker.enter(f, TO == 'open' and breaker.OPEN or breaker.CLOSED, breaker.FORCED, now, until_at, told)
    if TO == 'closed' then breaker.restart(f) end
    f.forced = 1
  end
  breaker.save(f, now, { 'r', REASON })
  audit_add({
    'at', format('%d', now), 'action', TO, 'downstream', DOWNSTREAM, 'for', format('%d', DURATION), 'author', AUTHOR, 'reason', REASON,
  })
  breaker_follow(f)
  freed_wake(now)
  return { fill(now) and 'more' or 'forced', format('%d', f.period) }
end
