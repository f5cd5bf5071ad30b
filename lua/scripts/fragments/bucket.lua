-- bucket: token buckets, the arithmetic of package buckets, operation for operation. Levels are micro-tokens,
-- rates micro-tokens a microsecond. A bucket that is not stored is full. One is stored as text, "level:stamp:fill:rate", or packed:
-- stamp, level, the burst in tokens, rate. It is packed where the state is (state.lua) and the burst is whole tokens; those of gates are
-- texts. A text of as many bytes as a packed one would be a stamp of the year 2370 or later: its first byte is a digit or a minus. That of a
-- fixed window is a 'w'.
local PACKED_BUCKET, PACKED_SIZE, STAMP_OF_TEXT = '>I7i7I4d', 26, 45 * 2 ^ 48
local PACKED_WINDOW, WINDOW_LETTER = '>i7i7i7i7', 119
local ceil = math.ceil
local function rate_print(rate) return format('%.17g', rate) end
local RATE_TEXTS = memory(rate_print)

local function window_is(stored) return byte(stored) == WINDOW_LETTER end

-- bucket_parse returns level, stamp, time to full and rate of a stored bucket. A window is read as one that nothing ever comes into: what it
-- left is refilled from the change of the policy on.
local function bucket_parse(stored)
  if #stored == PACKED_SIZE then
    local stamp, level, burst, rate = struct_unpack(PACKED_BUCKET, stored)
    if stamp < STAMP_OF_TEXT then return level, stamp, (burst * 1000000 - level) / rate, rate end
  end
  if window_is(stored) then
    local _, left = struct_unpack(PACKED_WINDOW, stored, 2)
    return left, 0, math.huge, 0
  end
  local level, stamp, span, rate = match(stored, '^(%-?%d+):(%d+):(%d+):(.+)$')
  return level + 0, stamp + 0, span + 0, rate + 0
end

-- bucket_settle returns level and stamp of a bucket, stored or false, of a rate and a burst as it stands at `now`.
local function bucket_settle(stored, rate, burst, changed_at, now)
  if not stored then return burst, now end
  local level, stamp, span, old = bucket_parse(stored)
  if stamp > now then stamp = now end
  local passed = now - stamp
  if passed >= span and rate >= old then return burst, now end
  if level > burst then level = burst end
  local gained
  if rate == old then
    gained = passed * rate
    if gained >= burst - level then return burst, now end
    gained = floor(gained)
    local took = ceil(gained / rate)
    stamp = stamp + (took < passed and took or passed)
  else
    local before = math.max(0, math.min(changed_at - stamp, passed))
    gained = before * math.min(rate, old) + (passed - before) * rate
    if gained >= burst - level then return burst, now end
    gained = floor(gained)
    stamp = now
  end
  if level + gained >= burst then return burst, now end
  return level + gained, stamp
end

-- bucket_wait returns the microseconds until a bucket holds cost.
local function bucket_wait(level, stamp, rate, cost, now)
  local need = cost - level
  local wait = stamp + ceil(need / rate) - now
  if wait < 1 then wait = 1 end
  if floor((wait + now - stamp) * rate) < need then wait = wait + 1 end
  return wait
end

local function bucket_text(level, stamp, span, rate)
  return format('%d:%d:%d:', level, stamp, ceil(span)) .. remembered(RATE_TEXTS, rate)
end

-- bucket_stored returns what is stored of a bucket.
local function bucket_stored(level, stamp, burst, rate, packs)
  if packs and burst % 1000000 == 0 then return struct_pack(PACKED_BUCKET, stamp, level, burst / 1000000, rate) end
  return bucket_text(level, stamp, (burst - level) / rate, rate)
end

-- Windows: limits of fixed windows, the arithmetic of buckets/window.go. Of one the script is told how long its windows are and when they begin:
-- where all are of one length when any of them does, else when those do that are near the caller's time. Which of them it is says the clock
-- of Redis, `t` of the state; before the first and behind the last of those it was told it takes them for even. In the columns of fragment
-- path its rate is its length, below zero, in microseconds, and its stamp the end of the window. One is stored as PACKED_WINDOW, behind a 'w':
-- its end, what is left, its length, and what it held as it began. One that is not stored holds all.

-- window_unpack reads a window from a place of a text, and returns it and where what follows begins: '<I2', how many beginnings there are, and
-- these as '<d'; for 0 one, of windows that are all of one length.
local function window_unpack(length, text, at)
  local n
  local w = { length = length }
  n, at = struct_unpack('<I2', text, at)
  if n == 0 then
    w.phase, at = struct_unpack('<d', text, at)
    return w, at
  end
  for i = 1, n do w[i], at = struct_unpack('<d', text, at) end
  return w, at
end

-- windows_unpack has limits know the windows of those that are, behind the limits in their text.
local function windows_unpack(limits, text, at)
  limits.windows = {}
  for level = 1, 3 do
    local rate = limits[2 * level - 1]
    if rate and rate < 0 then limits.windows[level], at = window_unpack(-rate, text, at) end
  end
end

-- window_bounds returns when the window of a time began, and when it ends.
local function window_bounds(w, t)
  local n = #w
  local from = w.phase or t < w[1] and w[1] or t >= w[n] and w[n]
  if from then
    local start = t - (t - from) % w.length
    return start, start + w.length
  end
  for i = 2, n do
    if t < w[i] then return w[i - 1], w[i] end
  end
end

-- window_parse returns what is left, the end, the length, and what it held as it began.
local function window_parse(stored)
  local ends, level, length, quota = struct_unpack(PACKED_WINDOW, stored, 2)
  return level, ends, length, quota
end

-- less_taken is what is left of a window of which so much was taken.
local function less_taken(burst, taken, left) return math.max(burst - taken, math.min(left, 0), -burst) end

-- window_settle returns what is left of the window of time t of the clock, and its end: buckets.Settle, which says why. changed_at and now are
-- of the buckets' time.
local function window_settle(stored, w, burst, changed_at, now, t)
  local start, ends = window_bounds(w, t)
  if not stored then return burst, ends end
  if not window_is(stored) then
    local level, stamp, span, rate = bucket_parse(stored)
    local passed = math.max(0, math.min(now, changed_at) - stamp)
    if now - changed_at >= t - start or passed >= span then return burst, ends end
    local came = floor(passed * rate)
    return less_taken(burst, ceil(ceil(span) * rate) - came, level + came), ends
  end
  local level, stamp, length, quota = window_parse(stored)
  if stamp < start or stamp == start and level >= 0 then return burst, ends end
  if stamp == start then return less_taken(burst, -level, level), ends end
  if stamp > ends and length == w.length and stamp - ends < 2 * length then
    ends = stamp
  elseif stamp ~= ends and now - changed_at >= t - start then
    return burst, ends
  end
  return less_taken(burst, quota - level, level), ends
end

-- window_wait returns the microseconds until a window holds cost: until it ends, or the one does that pays its debt.
local function window_wait(level, ends, w, burst, cost, t)
  if level < 0 and burst + level < cost then ends = select(2, window_bounds(w, ends)) end
  return math.max(ends - t, 1)
end

-- window_full returns from when on a window counts no more. A debt goes over to the one that follows.
local function window_full(level, ends, length) return level < 0 and ends + 2 * length or ends end

-- window_kept returns, by the buckets' time, when a window that is stored began, and for how long it counts from then on.
local function window_kept(stored, now, t)
  local level, ends, length = window_parse(stored)
  return ends - length - t + now, window_full(level, ends, length) - ends + length
end

local function window_stored(level, ends, length, burst) return 'w' .. struct_pack(PACKED_WINDOW, ends, level, length, burst) end
