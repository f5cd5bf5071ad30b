-- time: Redis TIME in microseconds, read once; a test passes its own. Two clocks of the state follow it: `bt`, by
-- which buckets refill, never goes back, and `dc`, by which ended ids age, advances by at most STEP at a time.
-- `step` is -1 after a larger step back, and 1 after a larger leap ahead: that is a step of the clock, or the time that nobody
-- called. Promote asks its caller, who has a clock of its own, which it was.
local STEP = 5000000

local function now_us(given)
  if given ~= '' then return tonumber(given) end
  local t = redis.call('TIME')
  return t[1] * 1000000 + t[2]
end

-- bucket_time is Redis TIME less every step back so far. 
local function bucket_time(now)
  local last = state_num('t')
  if last == 0 then return now end
  return state_num('bt') + math.max(0, now - last)
end

local function clock_advance(now)
  local last = state_num('t')
  local passed = now - last
  call.set_back = passed < 0
  state_set('bt', bucket_time(now))
  if last > 0 and passed < -STEP then state_set('step', -1) end
  if last > 0 and passed > STEP and state_num('step') == 0 then state_set('step', 1) end
  if passed > STEP then passed = STEP end
  if passed > 0 then state_add('dc', passed) end
  state_set('t', now)
end

-- Scales: an operator has limits be a part of what the policy says, for a time. HASH `scales`: all, global or t:TENANT → "part|ends|who and
-- why, as a hold has it (audit.lua)", ends by the buckets' time. While there may be some `pat` is half a microsecond above a whole one: so
-- nobody else asks for them, and to a release that does not know them `pat` is what it was. One that has ended has changed the limits then.
-- Of a limit that moves by itself (share.lua) it is that limit's gate → "part|0|": it has no end, and is taken for one that lasts LOOP_LASTS more. What
-- triggers leave of it has an end, by which all is in force again where nobody looks any more.
local LOOP_LASTS = 60000000
local function scale_parse(text)
  local part, ends = match(text, '^([^|]*)|(%d+)|')
  return { part = tonumber(part), ends = tonumber(ends), text = text }
end
local SCALES = memory(scale_parse)

-- scales_read returns what is in force at a time of the buckets by its target, nil for nothing, and when limits last changed.
local function scales_read(now)
  local changed_at = state_num('pat')
  if changed_at % 1 == 0 then return nil, changed_at end
  changed_at = floor(changed_at)
  local values, scales = redis.call('HGETALL', keys.scales), nil
  for i = 1, #values, 2 do
    local s = remembered(SCALES, values[i + 1])
    if byte(values[i]) == 108 then s = { part = s.part, ends = s.ends > 0 and s.ends or now + LOOP_LASTS, text = s.text, loop = true, stays = s.ends == 0 } end -- l:…
    if s.ends > now then
      scales = scales or {}
      scales[values[i]] = s
    else
      changed_at = math.max(changed_at, s.ends)
    end
  end
  if not scales then state_set('pat', changed_at) end
  return scales, changed_at
end

-- scales_write stores what limits are scaled to from a time of the buckets on. SCALES_KEPT is for how many milliseconds after the last its end is
-- remembered.
local SCALES_KEPT = 86400000
local function scales_write(at, scales)
  local rows, last, stays = {}, 0, false
  for target, s in pairs(scales) do
    rows[#rows + 1], rows[#rows + 2] = target, s.text
    last, stays = math.max(last, s.ends), stays or s.stays
  end
  redis.call('DEL', keys.scales)
  if #rows > 0 then
    redis.call('HSET', keys.scales, unpack(rows))
    if not stays then redis.call('PEXPIRE', keys.scales, ceil((last - at) / 1000) + SCALES_KEPT) end
  end
  state_set('pat', at + (#rows > 0 and 0.5 or 0))
end

-- limits_changed notes that limits are others from now on. The half in `pat` stays, by which it is known that limits are scaled.
local function limits_changed() state_set('pat', state_num('bt') + state_num('pat') % 1) end

-- begin: what scripts begin with that ask buckets alone.
local function clock_begin(now, fields)
  state_load(fields)
  clock_advance(now)
end

-- clock_keep has the clocks go on where Redis' was set back, for a call that writes nothing else: until one does the buckets' time stands still.
local function clock_keep()
  if call.set_back then state_write() end
end

-- call: what every script begins with that moves jobs.
local function call_begin(now, fields)
  local n = #fields
  fields[n + 1], fields[n + 2], fields[n + 3] = 'ng', 'pv', 'cfg:*'
  clock_begin(now, fields)
end
