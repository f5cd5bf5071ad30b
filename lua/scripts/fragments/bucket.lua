-- bucket: token buckets, the arithmetic of package buckets, operation for operation. Levels are micro-tokens,
-- rates micro-tokens a microsecond. A bucket that is not stored is full. One is stored as text, "level:stamp:fill:rate", or packed:
-- stamp, level, the burst in tokens, rate. It is packed where the state is (state.lua) and the burst is whole tokens; those of gates are
-- texts. A text of as many bytes as a packed one would be a stamp of the year 2370 or later: its first byte is a digit or a minus. That of a
-- fixed window is a 'w', of sliding ones a 'c' or an 'l'.
local PACKED_BUCKET, PACKED_SIZE, STAMP_OF_TEXT = '>I7i7I4d', 26, 45 * 2 ^ 48
local PACKED_WINDOW, BELOW_LETTERS = '>i7i7i7i7', 96
local ceil = math.ceil
local function rate_print(rate) return format('%.17g', rate) end
local RATE_TEXTS = memory(rate_print)

-- Sliding windows, the arithmetic of buckets/sliding.go. Of one it is stored what was taken when: by its tenths, or of a log by the
-- microsecond. What was taken counts until it is as old as the window, as if it had been taken in the last microsecond of its grain; all by the
-- buckets' time. A 'c', the length in seconds, what the window admits, the time of what was taken last and what was in its grain and in each of the
-- ten before; or of a log an 'l', the length, what it admits, the sum of what follows, and the entries, oldest first, each a time and tokens.
-- One that is read is a table: the window w, now, sum and count of what counts, in whole tokens, and those in stamps and tokens; or, of a log as it
-- was stored, the text, in which they begin at the place `first`, so that nobody reads a thousand of them to add one.
local SLIDE_COUNTS, SLIDE_GRAINS, COUNTS_LETTER = '>I4i7i7I4I4I4I4I4I4I4I4I4I4I4', 11, 99
local SLIDE_LOG, SLIDE_LOG_HEAD, LOG_LETTER, SLIDE_ENTRY, SLIDE_ENTRY_SIZE = '>I4i7I6', 18, 108, '>I7I4', 11

-- slide_is reports whether a stored bucket is a sliding window.
local function slide_is(stored)
  local letter = byte(stored)
  return letter == COUNTS_LETTER or letter == LOG_LETTER
end

-- slide_end is the last microsecond of the grain that a time lies in.
local function slide_end(stamp, grain) return stamp - stamp % grain + grain - 1 end

-- slide_parse returns times and tokens of what was taken, oldest first, how many they are, length, what the window admits, and its grain.
local function slide_parse(stored)
  local stamps, tokens, n = {}, {}, 0
  if byte(stored) == LOG_LETTER then
    local length, quota = struct_unpack(SLIDE_LOG, stored, 2)
    for at = SLIDE_LOG_HEAD + 1, #stored, SLIDE_ENTRY_SIZE do
      n = n + 1
      stamps[n], tokens[n] = struct_unpack(SLIDE_ENTRY, stored, at)
    end
    return stamps, tokens, n, length * 1000000, quota, 1
  end
  local v = { struct_unpack(SLIDE_COUNTS, stored, 2) }
  local length, newest = v[1] * 1000000, v[3]
  local grain = length / (SLIDE_GRAINS - 1)
  for i = SLIDE_GRAINS, 1, -1 do
    if v[3 + i] > 0 then
      n = n + 1
      stamps[n], tokens[n] = newest - (i - 1) * grain, v[3 + i]
    end
  end
  return stamps, tokens, n, length, v[2], grain
end

-- slide_count returns what a stored one counts at a time by its own length, and what it admits, in micro-tokens.
local function slide_count(stored, at)
  local stamps, tokens, n, length, quota = slide_parse(stored)
  local sum = 0
  for i = 1, n do
    if stamps[i] + length > at then sum = sum + tokens[i] end
  end
  return sum * 1000000, quota
end

-- slide_add adds what was taken at a time, later than all else, unless it is as old as the window.
local function slide_add(s, stamp, tokens)
  local n = s.count
  stamp = slide_end(stamp, s.w.grain)
  if stamp + s.w.length <= s.now or tokens <= 0 then return end
  s.sum = s.sum + tokens
  if n > 0 and s.stamps[n] == stamp then
    s.tokens[n] = s.tokens[n] + tokens
  else
    s.count, s.stamps[n + 1], s.tokens[n + 1] = n + 1, stamp, tokens
  end
end

-- slide_new is a window in which so much was taken, maybe nothing, in micro-tokens.
local function slide_new(w, now, stamp, lacks)
  local s = { w = w, now = now, sum = 0, count = 0, stamps = {}, tokens = {} }
  slide_add(s, stamp, math.ceil(lacks / 1000000))
  return s
end

-- slide_log reads a log that is stored as it is asked, nil where another clock has written it.
local function slide_log(stored, w, now)
  local size = #stored
  if size > SLIDE_LOG_HEAD and struct_unpack(SLIDE_ENTRY, stored, size - SLIDE_ENTRY_SIZE + 1) > now then return nil end
  local at, sum = SLIDE_LOG_HEAD + 1, select(3, struct_unpack(SLIDE_LOG, stored, 2))
  while at < size do
    local stamp, tokens = struct_unpack(SLIDE_ENTRY, stored, at)
    if stamp + w.length > now then break end
    at, sum = at + SLIDE_ENTRY_SIZE, sum - tokens
  end
  return { w = w, now = now, sum = sum, count = (size + 1 - at) / SLIDE_ENTRY_SIZE, first = at, text = stored }
end

-- slide_read reads a stored sliding window as the one that is in force: Limit.slide, which says why.
local function slide_read(stored, w, changed_at, now)
  if w.grain == 1 and byte(stored) == LOG_LETTER and struct_unpack('>I4', stored, 2) * 1000000 == w.length then
    local s = slide_log(stored, w, now)
    if s then return s end
  end
  local stamps, tokens, n, length, _, grain = slide_parse(stored)
  local s = slide_new(w, now, 0, 0)
  local same = length == w.length and grain == w.grain
  local latest = same and slide_end(now, grain) or math.min(changed_at, now)
  for i = 1, n do
    local stamp = math.min(stamps[i], latest)
    if not same then stamp = math.max(stamp, math.min(stamp + length - w.length, latest)) end
    slide_add(s, stamp, tokens[i])
  end
  return s
end

-- slide_level is what a window has left.
local function slide_level(s, burst) return burst - s.sum * 1000000 end

-- slide_entry returns time and tokens of the i-th of what counts.
local function slide_entry(s, i)
  if s.text then return struct_unpack(SLIDE_ENTRY, s.text, s.first + (i - 1) * SLIDE_ENTRY_SIZE) end
  return s.stamps[i], s.tokens[i]
end

-- slide_take_off takes so many tokens off the i-th.
local function slide_take_off(s, i, off)
  local stamp, tokens = slide_entry(s, i)
  s.sum = s.sum - off
  if not s.text then
    s.tokens[i] = tokens - off
    return
  end
  local at, left = s.first + (i - 1) * SLIDE_ENTRY_SIZE, ''
  if tokens > off then left = struct_pack(SLIDE_ENTRY, stamp, tokens - off) else s.count = s.count - 1 end
  s.text = sub(s.text, 1, at - 1) .. left .. sub(s.text, at + SLIDE_ENTRY_SIZE)
end

-- slide_give_back gives back what was taken at a time, as much of it as still counts, and returns how much that is. taken is what the call has taken of it, in
-- micro-tokens: that goes back first.
local function slide_give_back(s, at, back, taken)
  local wanted, given = slide_end(math.max(at, 0), s.w.grain), 0
  if wanted == slide_end(s.now, s.w.grain) then given = math.min(back, ceil(taken / 1000000)) end
  for i = s.count, 1, -1 do
    local stamp, tokens = slide_entry(s, i)
    if stamp == wanted then
      local off = math.min(back - given, tokens)
      if off > 0 then slide_take_off(s, i, off) end
      return given + off
    end
    if stamp < wanted then break end
  end
  return given
end

-- slide_return gives back tokens of which nobody noted when they were taken: from the oldest on, so that nothing newer is forgotten before its
-- time.
local function slide_return(s, back)
  local i = 1
  while back > 0 and i <= s.count do
    local _, tokens = slide_entry(s, i)
    local off, count = math.min(back, tokens), s.count
    slide_take_off(s, i, off)
    back = back - off
    if s.count == count then i = i + 1 end
  end
end

-- slide_until returns in how many microseconds a window of so much holds cost; never, where that is above it. taken is what the call has taken
-- of it, in micro-tokens.
local function slide_until(s, burst, taken, cost)
  local level = slide_level(s, burst) - taken
  if burst < cost then return math.huge end
  if level >= cost then return 0 end
  for i = 1, s.count do
    local stamp, tokens = slide_entry(s, i)
    level = level + tokens * 1000000
    if level >= cost then return stamp + s.w.length - s.now end
  end
  return slide_end(s.now, s.w.grain) + s.w.length - s.now
end

-- slide_stored returns what is stored of a window that has so much left, and until when it counts. What it lacks beside what counts was taken in
-- this call.
local function slide_stored(s, level, burst)
  local w, taken = s.w, (slide_level(s, burst) - level) / 1000000
  if s.text then
    local text, stamp, tokens = sub(s.text, s.first), 0, 0
    if s.count > 0 then stamp, tokens = slide_entry(s, s.count) end
    if taken > 0 and stamp == s.now then
      text = sub(text, 1, -SLIDE_ENTRY_SIZE - 1) .. struct_pack(SLIDE_ENTRY, stamp, tokens + taken)
    elseif taken > 0 then
      stamp = s.now
      text = text .. struct_pack(SLIDE_ENTRY, stamp, taken)
    end
    return 'l' .. struct_pack(SLIDE_LOG, w.length / 1000000, burst, s.sum + taken) .. text, stamp + w.length
  end
  slide_add(s, s.now, taken)
  local newest, log, counts = 0, {}, { 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0 }
  for i = s.count, 1, -1 do
    local stamp, tokens = s.stamps[i], s.tokens[i]
    if tokens > 0 then
      newest = math.max(newest, stamp)
      if w.grain > 1 then
        counts[(newest - stamp) / w.grain + 1] = tokens
      else
        table.insert(log, 1, struct_pack(SLIDE_ENTRY, stamp, tokens))
      end
    end
  end
  if w.grain > 1 then return 'c' .. struct_pack(SLIDE_COUNTS, w.length / 1000000, burst, newest, unpack(counts)), newest + w.length end
  return 'l' .. struct_pack(SLIDE_LOG, w.length / 1000000, burst, s.sum) .. table.concat(log), newest + w.length
end

-- window_is reports whether a stored bucket is a window of any kind.
local function window_is(stored) return byte(stored) > BELOW_LETTERS end

-- bucket_parse returns level, stamp, time to full and rate of a stored bucket. A window is read as one that nothing ever comes into: what it
-- left, a sliding one at the change of the policy, is refilled from then on; a sliding one that had all left is full.
local function bucket_parse(stored, changed_at)
  if #stored == PACKED_SIZE then
    local stamp, level, burst, rate = struct_unpack(PACKED_BUCKET, stored)
    if stamp < STAMP_OF_TEXT then return level, stamp, (burst * 1000000 - level) / rate, rate end
  end
  if slide_is(stored) then
    local count, quota = slide_count(stored, changed_at or 0)
    return quota - count, 0, count > 0 and math.huge or 0, 0
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
  local level, stamp, span, old = bucket_parse(stored, changed_at)
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
-- these as '<d'; for 0 one, of windows that are all of one length; for SLIDING_COUNT and SLIDING_LOG none, of sliding ones.
local SLIDING_COUNT, SLIDING_LOG, SUB_WINDOWS = 65535, 65534, 10
local function window_unpack(length, text, at)
  local n
  local w = { length = length }
  n, at = struct_unpack('<I2', text, at)
  if n >= SLIDING_LOG then
    w.grain = n == SLIDING_LOG and 1 or length / SUB_WINDOWS
    return w, at
  end
  if n == 0 then
    w.phase, at = struct_unpack('<d', text, at)
    return w, at
  end
  for i = 1, n do w[i], at = struct_unpack('<d', text, at) end
  return w, at
end

-- windows_unpack has limits know the windows of those that are, behind the limits in their text, and returns where what follows begins.
local function windows_unpack(limits, text, at)
  limits.windows = {}
  for level = 1, limits[7] and 4 or 3 do
    local rate = limits[2 * level - 1]
    if rate and rate < 0 then limits.windows[level], at = window_unpack(-rate, text, at) end
  end
  return at
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

-- slide_behind returns what of a stored bucket, or false, counts in a sliding window: Limit.slide, which says why.
local function slide_behind(stored, w, changed_at, now, t)
  if not stored then return slide_new(w, now, 0, 0) end
  if slide_is(stored) then return slide_read(stored, w, changed_at, now) end
  changed_at = math.min(changed_at, now)
  if window_is(stored) then
    local left, ends, _, quota = window_parse(stored)
    return slide_new(w, now, math.max(math.min(ends - t + now, changed_at), 0), quota - left)
  end
  local _, stamp, span, rate = bucket_parse(stored)
  local passed = math.max(changed_at - stamp, 0)
  if passed >= ceil(span) then return slide_new(w, now, 0, 0) end
  return slide_new(w, now, math.min(now, math.max(changed_at, stamp)), ceil(ceil(span) * rate) - floor(passed * rate))
end

-- window_settle returns what is left of the window of time t of the clock, and its end: buckets.Settle, which says why. changed_at and now are
-- of the buckets' time.
local function window_settle(stored, w, burst, changed_at, now, t)
  if w.grain then
    local s = slide_behind(stored, w, changed_at, now, t)
    return slide_level(s, burst), s
  end
  local start, ends = window_bounds(w, t)
  if not stored then return burst, ends end
  if slide_is(stored) then
    local count, quota = slide_count(stored, math.min(now, changed_at))
    if now - changed_at >= t - start or count == 0 then return burst, ends end
    return less_taken(burst, count, quota - count), ends
  end
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
  if w.grain then return math.max(slide_until(ends, burst, slide_level(ends, burst) - level, cost), 1) end
  if level < 0 and burst + level < cost then ends = select(2, window_bounds(w, ends)) end
  return math.max(ends - t, 1)
end

-- window_full returns from when on a window counts no more. A debt goes over to the one that follows.
local function window_full(level, ends, length) return level < 0 and ends + 2 * length or ends end

-- window_kept returns, by the buckets' time, when a window that is stored began, and for how long it counts from then on.
local function window_kept(stored, now, t)
  if slide_is(stored) then
    local stamps, _, n, length, _, grain = slide_parse(stored)
    return (stamps[n] or 0) - grain + 1, length + grain - 1
  end
  local level, ends, length = window_parse(stored)
  return ends - length - t + now, window_full(level, ends, length) - ends + length
end

-- window_stored returns what is stored of a window, and until when it counts by the buckets' time, which is so far ahead of the clock.
local function window_stored(level, ends, w, burst, ahead)
  if w.grain then return slide_stored(ends, level, burst) end
  return 'w' .. struct_pack(PACKED_WINDOW, ends, level, w.length, burst), window_full(level, ends, w.length) + ahead
end
