-- adapt brings a limit that moves by itself to where its loop wants it, and notes why.
-- KEYS[1] state  hash; the partition's other keys share its hash tag and are named after it
-- ARGV[1] now  microseconds, "" for Redis TIME
-- ARGV[2] name  of the gate
-- ARGV[3] limit  units; of a rate, millionths of a job a second; of limits of admission, thousandths of the policy's
-- ARGV[4] cause  a word
-- ARGV[5] owner  of the timer lease, where number is 0
-- ARGV[6] version  of the policy by which the loop goes, where number is 0
-- ARGV[7] number  0 in the first partition, which counts; in others what it replied there
-- ARGV[8] life  microseconds for which limits of admission are so unless they are moved anew, 0 for until they are
-- ARGV[9] back  what is in force when no trigger reduces it any more, 0 where none does
-- ARGV[10] dead_band  how many looks since the last word found a change that was too little to make
-- Reply {"moved" | "more", number} or {"kept", 0}, {"held", 0}, {"stale", version in force} or {"none", 0}; kept is of one that an operator has frozen
--   or set otherwise, or of a number that is older than the last
-- A rate whose receiver pushes back is eased by a step where that is due. Of one that is frozen that is all, and of limits of admission another life, for the limit
-- that it has.
-- What an operator has set for a time, and whose time is over, goes back.
-- Never leaves the bounds of the policy, whatever limit is asked for, nor tells the audit more often than TELL_EVERY.
-- @flag allow-oom
-- @relief
-- adaptive_by_others reports whether somebody has set the gate of a limit otherwise.
local function adaptive_by_others(name, a, g, s)
  if limits_move(name) then return false end -- What else scales limits goes beside it.
  if g and g.burst then return false end -- Nobody sets a rate but the policy.
  if not g or g.default or g.limit ~= 0 and not match(g.rest, '^0|') then return true end
  return not s and share_in_force(g) ~= a.limit
end

-- adaptive_told tells a limit to the audit.
local function adaptive_told(name, a, limit)
  if limits_move(name) then return format('%.4g %%', 100 * limit / LIMITS_WHOLE) end
  return a.burst and format('%.4g a second', limit / RATE_UNIT) or format('%d', limit)
end

function scripts.adapt(KEYS, ARGV)
  local STATE, NOW, NAME, LIMIT, CAUSE = KEYS[1], ARGV[1], ARGV[2], tonumber(ARGV[3]), ARGV[4]
  local OWNER, VERSION, NUMBER, LIFE, BACK, DEAD_BAND = ARGV[5], ARGV[6], tonumber(ARGV[7]), tonumber(ARGV[8]), tonumber(ARGV[9]), tonumber(ARGV[10])
  local TELL_EVERY, EASE_EVERY = 60000000, 1000000
  local now = now_us(NOW)
  call_begin(now, { 'promoter', 'pools', 'na' })
  if NUMBER == 0 then
    if match(state_get('promoter') or '', '^%d+|(.*)$') ~= OWNER then return { 'held', '0' } end
    if (state_get('pv') or '0') ~= VERSION then return { 'stale', state_get('pv') or '0' } end
  end
  local a, g, s = adaptive_read(NAME), gate(NAME), share_read(NAME)
  if not a then return { 'none', '0' } end
  local until_us, back = adaptive_overridden(a)
  if until_us and now >= until_us and NUMBER == 0 then
    a.frozen, LIMIT, CAUSE = '', back, 'override_over'
  end
  local frozen = a.frozen ~= '' and not ((a.burst or limits_move(NAME)) and LIMIT == a.limit)
  if frozen or adaptive_by_others(NAME, a, g, s) or NUMBER ~= 0 and NUMBER < a.number then return { 'kept', '0' } end
  a.number = NUMBER == 0 and a.number + 1 or NUMBER
  a.cause, a.at, a.dead_band = CAUSE, now, a.dead_band + DEAD_BAND
  local reduced = a.back or BACK > 0
  a.back = BACK > 0 and BACK or nil
  local limit = adaptive_clamp(a, LIMIT)
  local eases = (a.push or 0) > 0 and state_num('bt') >= a.eased
  if eases then
    a.push, a.eased = a.push > 2 and a.push - 1 or 0, state_num('bt') + EASE_EVERY
  end
  if limit == a.limit then
    adaptive_write(NAME, a)
    if eases then
      adaptive_apply(NAME, a, g, s, now)
      freed_wake(now)
      return { fill(now) and 'more' or 'moved', format('%d', a.number) }
    end
    if reduced and limits_move(NAME) then limits_apply(NAME, limit, LIFE) end
    state_write()
    return { 'moved', format('%d', a.number) }
  end
  local way = limit > a.limit and 'raised' or 'lowered'
  a[way] = a[way] + 1
  a.before, a.limit, a.why, a.changed = a.limit, limit, CAUSE, now
  adaptive_apply(NAME, a, g, s, now, LIFE)
  if NUMBER == 0 and now - a.told_at >= TELL_EVERY then
    local by = { action = 'adapt', act = format('%d %s', now, NAME), author = 'headgate', reason = format('%s to %s: %s', adaptive_told(NAME, a, a.told), adaptive_told(NAME, a, limit), CAUSE) }
    audit_act(now, by, NAME, g and g.held or 0, 0)
    a.told, a.told_at = limit, now
  end
  adaptive_write(NAME, a)
  freed_wake(now)
  return { fill(now) and 'more' or 'moved', format('%d', a.number) }
end
