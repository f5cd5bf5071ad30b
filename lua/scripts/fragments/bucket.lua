-- bucket: token buckets, the arithmetic of package buckets, operation for operation. Levels are micro-tokens,
-- rates micro-tokens a microsecond. A stored bucket is "level:stamp:fill:rate"; an absent one is full.
local function rate_print(rate) return format('%.17g', rate) end
local RATE_TEXTS = memory(rate_print)

-- bucket_settle brings a bucket {rate, burst} to what is stored of it as it stands at `now`, and returns it.
local function bucket_settle(b, stored, changed_at, now)
  local rate, burst = b.rate, b.burst
  b.level, b.stamp = burst, now
  if not stored then return b end
  local level, stamp, span, old = match(stored, '^(%-?%d+):(%d+):(%d+):(.+)$')
  stamp, span = tonumber(stamp), tonumber(span)
  old = old == remembered(RATE_TEXTS, rate) and rate or tonumber(old)
  if stamp > now then stamp = now end
  local passed = now - stamp
  if passed >= span and rate >= old then return b end
  level = tonumber(level)
  if level > burst then level = burst end
  local gained
  if rate == old then
    gained = passed * rate
    if gained >= burst - level then return b end
    gained = floor(gained)
    stamp = stamp + math.min(passed, math.ceil(gained / rate))
  else
    local before = math.max(0, math.min(changed_at - stamp, passed))
    gained = before * math.min(rate, old) + (passed - before) * rate
    if gained >= burst - level then return b end
    gained = floor(gained)
    stamp = now
  end
  if level + gained >= burst then return b end
  b.level, b.stamp = level + gained, stamp
  return b
end

-- bucket_wait returns the microseconds until b holds cost.
local function bucket_wait(b, cost, now)
  local need = cost - b.level
  local wait = b.stamp + math.ceil(need / b.rate) - now
  if wait < 1 then wait = 1 end
  if floor((wait + now - b.stamp) * b.rate) < need then wait = wait + 1 end
  return wait
end

local function bucket_fill(b)
  return math.ceil((b.burst - b.level) / b.rate)
end

-- bucket_text needs what bucket_fill says.
local function bucket_text(b, span)
  return format('%d:%d:%d:', b.level, b.stamp, span) .. remembered(RATE_TEXTS, b.rate)
end
