-- @include bytes
-- bucket: token buckets, the arithmetic of package buckets, operation for operation. Levels are micro-tokens,
-- rates micro-tokens a microsecond. A stored bucket is "level:stamp:fill:rate"; an absent one is full.
-- bucket_settle returns a bucket {level, stamp, rate, burst} as it stands at `now`.
local function bucket_settle(stored, rate, burst, changed_at, now)
  local b = { level = burst, stamp = now, rate = rate, burst = burst }
  if not stored then return b end
  local level, stamp, span, old = match(stored, '^(%-?%d+):(%d+):(%d+):(.+)$')
  level, stamp, span, old = tonumber(level), tonumber(stamp), tonumber(span), tonumber(old)
  if stamp > now then stamp = now end
  if now - stamp >= span and rate >= old then return b end
  if level > burst then level = burst end
  local gained
  if rate == old then
    gained = (now - stamp) * rate
    if gained >= burst then return b end
    gained = floor(gained)
    stamp = stamp + math.min(now - stamp, math.ceil(gained / rate))
  else
    local before = math.max(0, math.min(changed_at - stamp, now - stamp))
    gained = before * math.min(rate, old) + (now - stamp - before) * rate
    if gained >= burst then return b end
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

local function bucket_text(b)
  return format('%d:%d:%d:%.17g', b.level, b.stamp, bucket_fill(b), b.rate)
end
