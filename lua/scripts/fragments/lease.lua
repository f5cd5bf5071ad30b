-- lease: tokens that limiters hold and spend by themselves, for scripts that have read the paths of fragment path and bind
-- MEMBER and TTL. A scope's leases are a hash, holder → "end:tokens", by the buckets' time; the bucket was debited when they
-- were granted. Its holders are counted one by one, so they are few: others are served without a lease.
local HOLDERS = 128

-- members_beat notes that this limiter lives for so long, or not at all, and returns how many live.
local function members_beat(span)
  local key = keys.limiters
  redis.call('ZREMRANGEBYSCORE', key, '-inf', format('%d', call.filled_to))
  if span == 0 then
    redis.call('ZREM', key, call.member)
  else
    redis.call('ZADD', key, format('%d', call.filled_to + span), call.member)
    redis.call('PEXPIRE', key, math.ceil(span / 1000) + 1000)
  end
  return redis.call('ZCARD', key)
end

-- bucket_draw takes up to so many tokens, at most a part of what the bucket holds, and returns how many.
local function bucket_draw(b, tokens, part)
  if not b or tokens <= 0 then return 0 end
  if bucket_absent[b] and not bucket_dirty[b] and not room_for(b) then return 0 end
  local drawn = math.max(0, math.min(tokens, floor(bucket_levels[b] * part / 1000000)))
  if drawn > 0 then bucket_put(b, bucket_levels[b] - drawn * 1000000) end
  return drawn
end

-- bucket_return gives tokens back, which refund must know of: it gives back less where others did meanwhile.
local function bucket_return(b, tokens)
  if not b or bucket_absent[b] or tokens == 0 then return end
  state_add('rf', tokens)
  local before = bucket_levels[b]
  bucket_put(b, math.min(before + tokens * 1000000, bucket_bursts[b]))
  if bucket_rates[b] < 0 and bucket_windows[b].grain then slide_return(bucket_stamps[b], (bucket_levels[b] - before) / 1000000) end
  if bucket_levels[b] == bucket_bursts[b] and bucket_rates[b] > 0 then bucket_stamps[b] = call.filled_to end
end

-- leases_read returns this limiter's tokens on lease (nil without a lease), and those of the others and how many they are.
-- What has ended is removed.
local function leases_read(key)
  local values, gone = redis.call('HGETALL', key), {}
  local mine, others, holders = nil, 0, 0
  for i = 1, #values, 2 do
    local ends, tokens = match(values[i + 1], '^(%d+):(%d+)$')
    if tonumber(ends) <= call.filled_to then
      gone[#gone + 1] = values[i]
    elseif values[i] == call.member then
      mine = tonumber(tokens)
    else
      others, holders = others + tokens, holders + 1
    end
  end
  if #gone > 0 then redis.call('HDEL', key, unpack(gone)) end
  return mine, others, holders
end

-- stock_draw takes up to `want` tokens for the stock of a limiter that still has some, `cap` in all or as much less as the bucket is scaled, and
-- returns how many. It leaves half of the burst. Nothing is noted of them: they do not end, and do not come back.
local function stock_draw(b, want, held, cap)
  if not b then return 0 end
  local s = scale_at(b)
  if s then cap = floor(s.part * cap) end
  local above = floor((bucket_levels[b] - bucket_bursts[b] / 2) / 1000000)
  return bucket_draw(b, math.min(want, cap - held, above), 1)
end

-- lease_return ends this limiter's lease and returns how many of its tokens go back: none where it has ended.
local function lease_return(scope, back)
  if back == 0 then return 0 end
  local key = call.prefix .. 'lease:' .. scope
  local mine = leases_read(key)
  redis.call('HDEL', key, call.member)
  return math.min(back, mine or 0)
end

-- lease_draw leases up to `want` tokens to a limiter that still holds some, and returns how many, and how many holders there
-- are. Each may hold its part of `cap`, all together `cap`, or as much less as the bucket is scaled.
local function lease_draw(b, scope, want, held, cap)
  if not b or want <= 0 then return 0, 0 end
  local key = call.prefix .. 'lease:' .. scope
  local mine, others, holders = leases_read(key)
  local s = scale_at(b)
  if s then cap = floor(cap * s.part) end
  if not mine and holders >= HOLDERS then return 0, holders end
  local room = math.min(floor(cap / (holders + 1)) - held, cap - others - held)
  local leased = bucket_draw(b, math.min(want, room), 0.5)
  if held + leased > 0 then
    redis.call('HSET', key, call.member, format('%d:%d', call.filled_to + call.ttl, held + leased))
    redis.call('PEXPIRE', key, math.ceil(call.ttl / 1000) + 1000)
  elseif mine then
    redis.call('HDEL', key, call.member)
  end
  return leased, holders + 1
end
