-- bucket: token buckets, the arithmetic of package buckets, operation for operation. Levels are micro-tokens,
-- rates micro-tokens a microsecond. A bucket that is not stored is full. One is stored as text, "level:stamp:fill:rate", or packed:
-- stamp, level, the burst in tokens, rate. It is packed where the state is (state.lua) and the burst is whole tokens; those of gates are
-- texts. A text of as many bytes as a packed one would be a stamp of the year 2370 or later: its first byte is a digit or a minus.
local PACKED_BUCKET, PACKED_SIZE, STAMP_OF_TEXT = '>I7i7I4d', 26, 45 * 2 ^ 48
local ceil = math.ceil
local function rate_print(rate) return format('%.17g', rate) end
local RATE_TEXTS = memory(rate_print)

-- bucket_parse returns level, stamp, time to full and rate of a stored bucket.
local function bucket_parse(stored)
  if #stored == PACKED_SIZE then
    local stamp, level, burst, rate = struct_unpack(PACKED_BUCKET, stored)
    if stamp < STAMP_OF_TEXT then return level, stamp, (burst * 1000000 - level) / rate, rate end
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
