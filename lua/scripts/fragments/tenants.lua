-- ring: a sparse window of slices, the oldest first: "index,successes,failures,slow,slow ends;…". Slices are numbered
-- from the origin of the clock.
local function ring_parse(text)
  local ring = {}
  for index, ok, failed, slow, ends in string.gmatch(text, '(%d+),(%d+),(%d+),(%d+),(%d+)') do
    ring[#ring + 1] = { tonumber(index), tonumber(ok), tonumber(failed), tonumber(slow), tonumber(ends) }
  end
  return ring
end

-- ring_sum returns the calls that ended and failed, and those timed and slow, while a slice is in force.
local function ring_sum(ring, index, buckets)
  local ok, failed, slow, ends = 0, 0, 0, 0
  for _, slice in ipairs(ring) do
    if slice[1] > index - buckets then
      ok, failed, slow, ends = ok + slice[2], failed + slice[3], slow + slice[4], ends + slice[5]
    end
  end
  return ok + failed, failed, ok + failed - ends + slow, slow
end

-- tenants: what a breaker knows of the tenants whose calls it counts, step for step that of breaker.Fleet. A report names
-- tenants by number; a number has a place among GROUPS, another one in each epoch. In the HASH br:DOWNSTREAM:
--   s:GROUP    epoch|own streak|own window in halves, a ring
local tenants = {}
do
  local GROUPS, PRIME, AGREEMENT, STREAK_SHARE = 32, 1031, 0.8, 0.34

  function tenants.group(f, number) return number * (f.epoch % (PRIME - 1) + 1) % PRIME % GROUPS end

  -- tenants.half returns the number of the half of a window that a slice belongs to, and how many halves count.
  function tenants.half(f, index)
    return floor(index / floor((f.rules.buckets + 1) / 2)), math.min(2, f.rules.buckets)
  end

  function tenants.parse(text)
    local epoch, streak, ring = match(text, '^(%d+)|(%d+)|(.*)$')
    return { epoch = tonumber(epoch), streak = tonumber(streak), ring = ring }
  end

  -- tenants.sums returns what each group that has called counted, in order.
  function tenants.sums(f, groups, index)
    local all, half, kept = {}, tenants.half(f, index)
    for g = 0, GROUPS - 1 do
      local t = groups[g]
      if t and t.epoch == f.epoch then
        local over, failed, timed, slow = ring_sum(ring_parse(t.ring), half, kept)
        if over > 0 or timed > 0 then
          all[#all + 1] = { group = g, over = over, failed = failed, timed = timed, slow = slow, streak = t.streak }
        end
      end
    end
    return all
  end

  -- share returns how far the calls of a group meet a rule, from 0 to 1, nil where they say nothing about it. For the streak
  -- it is whether the group's last calls failed, as many as are its share of the threshold, or all if they are fewer.
  local function share(f, rule, t, groups)
    if rule == 'slow' then return t.timed > 0 and t.slow / t.timed or nil end
    if t.over == 0 then return nil end
    if rule == 'rate' then return t.failed / t.over end
    local own = floor((f.rules.failure_threshold + groups - 1) / groups)
    return t.streak >= math.min(t.over, own) and 1 or 0
  end

  function tenants.least(f, rule)
    return rule == 'rate' and f.rules.failure_rate * AGREEMENT or rule == 'slow' and f.rules.slow_call_rate * AGREEMENT or STREAK_SHARE
  end

  -- tenants.shares returns how many groups have called, the mean of how far their calls meet a rule but for the group that
  -- does so most (of that one, where it is the only one), and how far that does, and which it is.
  function tenants.shares(f, rule, sums)
    local callers = 0
    for _, t in ipairs(sums) do
      if rule == 'slow' and t.timed > 0 or rule ~= 'slow' and t.over > 0 then callers = callers + 1 end
    end
    local sum, most, worst = 0, 0, nil
    for _, t in ipairs(sums) do
      local part = share(f, rule, t, callers)
      if part then
        sum = sum + part
        if not worst or part > most then worst, most = t.group, part end
      end
    end
    if callers > 1 then return callers, (sum - most) / (callers - 1), most, worst end
    return callers, most, most, worst
  end

  -- tenants.pass and tenants.fail note how probes of a group ended, places from 1. fail reports whether that opens the
  -- breaker, and whether only because of one tenant's though another called too.
  function tenants.pass(f, place)
    if f.passer == 0 then
      f.passer = place
    elseif f.passer ~= place and f.passer_too == 0 then
      f.passer_too = place
    end
  end

  function tenants.fail(f, place, failures, alone)
    if f.failer ~= 0 and f.failer ~= place then return true, false end
    f.failer, f.failed = place, f.failed + failures
    local elsewhere = f.passer ~= 0 and f.passer ~= place or f.passer_too ~= 0
    return alone or f.failed >= (elsewhere and 2 * f.rules.success_threshold or 2), not alone
  end
end
