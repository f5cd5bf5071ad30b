-- gate sets, changes or removes a gate: pause, breaker or cap of a queue, tenant, tenant in a queue, or downstream; or pauses what it
-- guards, or ends that. It tells the audit who did.
-- KEYS[1] state  hash; the partition's other keys share its hash tag and are named after it
-- ARGV[1] now  microseconds, "" for Redis TIME
-- ARGV[2] name  q:QUEUE, t:TENANT, u:TENANT:QUEUE or d:DOWNSTREAM
-- ARGV[3] limit  units, 0 for shut, "" for no gate; "pause" shuts it and leaves behind the cap that is in force, "resume" ends that;
--   "hold" is "pause" but for what is paused already, and ends no more than PAUSE_SLACK sooner
-- ARGV[4] duration  microseconds until `then` applies, 0 for ever
-- ARGV[5] then  limit after that, "" for no gate; a pause knows its own
-- ARGV[6] by  who does it and why, as fragments/audit.lua reads it
-- Reply {"set" | "more" | "none" | "kept", units held}; "none" is for a resume where nothing is paused, "kept" for a hold that changes nothing
-- Of triggers (fragments/audit.lua) a hold or a resume of what somebody else has paused changes nothing, and the audit is told once of a hold that goes on.
-- Never moves a waiting job when a gate closes: what is stopped parks when it comes to the head.
-- @flag allow-oom
-- @relief
local PAUSE_SLACK = 1000000

-- gate_holds reports whether a gate is paused for as long as a hold asks for, 0 for ever.
local function gate_holds(g, now, duration)
  if g.limit ~= 0 then return false end
  local until_us = tonumber((match(g.rest, '^(%d+)|')))
  return until_us == 0 or duration > 0 and until_us + PAUSE_SLACK >= now + duration
end

function scripts.gate(KEYS, ARGV)
  local STATE, NOW, NAME, LIMIT, DURATION, THEN, BY = KEYS[1], ARGV[1], ARGV[2], ARGV[3], tonumber(ARGV[4]), ARGV[5], ARGV[6]
  local now = now_us(NOW)

  call_begin(now, { 'pools' })
  local by = by_read(BY)
  local g, s = gate(NAME), share_read(NAME)
  local own = g and not g.default
  local before = own and g.limit == 0 and g.rest or nil
  if LIMIT == 'hold' then
    if own and (gate_holds(g, now, DURATION) or hold_others(by, before)) then return { 'kept', format('%d', g.held) } end
    LIMIT = 'pause'
  end
  if LIMIT ~= 'pause' and LIMIT ~= 'resume' then
    redis.call('HDEL', STATE, 'ps') -- The gate is not what the policy says any more: the next edit looks.
  end
  if LIMIT == 'pause' then
    local left, text = share_in_force(own and g)
    LIMIT, THEN = '0', left and left > 0 and text or ''
  elseif LIMIT == 'resume' then
    if not own or g.limit ~= 0 or hold_others(by, before) then return { 'none', g and format('%d', g.held) or '0' } end
    LIMIT, THEN = match(g.rest, '^%d+|([^|]*)|'), ''
  end
  if s and s.whole ~= '' then -- who pauses or ends it may have read an older share
    local most = math.min(share_in_force(g) or share_cap(s), share_cap(s))
    if LIMIT == '0' then
      THEN = format('%d', most)
    else
      LIMIT = format('%d', math.min(tonumber(LIMIT) or most, most))
    end
  end
  redis.call('ZREM', keys.due, 'g' .. NAME)
  call.earliest = nil
  if LIMIT == '' then
    gate_remove(NAME)
    g = g and { held = g.held } -- What starts from now on is not under it, though a record's cap, which needs no gate, counts it.
  else
    if not own then
      gate_count(NAME, 1)
      g = { held = g and g.held or entries_count()[NAME] or 0 }
      call.gates[NAME] = g
    end
    local until_us = DURATION > 0 and now + DURATION or 0
    gate_limited(g, LIMIT)
    g.rest = format('%d|%s|', until_us, THEN) .. (LIMIT == '0' and hold_reason(by, now) or by.reason)
    gate_again(NAME)
    call.gates_dirty[NAME] = true
    if until_us > 0 then due_add(keys.due, until_us, 'g' .. NAME) end
  end
  if LIMIT ~= '0' or not hold_renewed(by, before) then audit_act(now, by, NAME, g and g.held or 0, DURATION) end
  call.freed[NAME] = true
  freed_wake(now)
  local continues = fill(now)
  return { continues and 'more' or 'set', g and format('%d', g.held) or '0' }
end
