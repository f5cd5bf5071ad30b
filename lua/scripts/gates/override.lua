-- override puts a limit that moves by itself where an operator wants it, for a time, or ends that; and tells the audit who did.
-- KEYS[1] state  hash; the partition's other keys share its hash tag and are named after it
-- ARGV[1] now  microseconds, "" for Redis TIME
-- ARGV[2] name  of the gate
-- ARGV[3] limit  units; of a rate, millionths of a job a second; of limits of admission, thousandths of the policy's
-- ARGV[4] duration  microseconds, 0 to end it
-- ARGV[5] by  who does it and why, as fragments/audit.lua reads it
-- Reply {"set" | "more", number}, {"was not", 0} where there is nothing to end, {"none", 0} for a gate whose limit does not move by itself, or
--   {"range", least, most}
-- Never leaves the bounds of the policy.
-- @flag allow-oom
-- @relief
function scripts.override(KEYS, ARGV)
  local STATE, NOW, NAME, LIMIT, DURATION, BY = KEYS[1], ARGV[1], ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4]), ARGV[5]
  local now = now_us(NOW)
  call_begin(now, { 'pools', 'na' })
  local by, a, g = by_read(BY), adaptive_read(NAME), gate(NAME)
  if not a or not limits_move(NAME) and (not g or g.default) then return { 'none', '0' } end
  local until_us, back = adaptive_overridden(a)
  if DURATION == 0 and not until_us then return { 'was not', '0' } end
  if DURATION > 0 and (LIMIT < a.least or LIMIT > a.most) then return { 'range', format('%d', a.least), format('%d', a.most) } end
  local limit, cause = LIMIT, 'override'
  if DURATION == 0 then
    limit, cause, a.frozen = adaptive_clamp(a, back), 'override_over', ''
  else
    a.frozen = format('%s\2%d|%d', hold_reason(by, now), now + DURATION, back or a.limit)
  end
  a.number, a.cause, a.at = a.number + 1, cause, now
  if limit ~= a.limit then
    a.before, a.limit, a.why, a.changed = a.limit, limit, cause, now
    adaptive_apply(NAME, a, g, share_read(NAME), now, 0)
  elseif a.back and limits_move(NAME) then
    limits_apply(NAME, limit, 0)
  end
  adaptive_write(NAME, a)
  audit_act(now, by, NAME, g and g.held or 0, DURATION)
  freed_wake(now)
  return { fill(now) and 'more' or 'set', format('%d', a.number) }
end
