-- breaker: the breaker of a downstream for the whole fleet, step for step that of breaker.Fleet. Its clock is that of
-- buckets, which never goes back. What stands in a HASH br:DOWNSTREAM:
--   m          META below, joined by |
--   c          rules: RULE_NAMES below, joined by |, times in microseconds
--   t          the fleet's window, a ring (tenants.lua)
--   x          EXTRA below, as m: fields that an older release does not know, and leaves as they are
--   a          how many calls were refused as too many, of a downstream whose dispatch moves by itself
--   e          the last errors, the newest first, a line each: when, how often, text, parted by tabs (breaker.lua)
--   d          the last report of rules that are not in force: worker|when it came|rules
--   r          the reason that an operator gave last
--   w:WORKER   sequence|when it last reported|epoch|its own streak|its own window, a ring
--   p:CALL     period|when it began: a probe that is no job of the waiting room (probe.lua)
-- `breakers` is the SET of downstreams that have one, `events` the STREAM of transitions, `marks` (gate.lua) knows the
-- probes. Whoever changes a breaker saves it, and ends with breaker_follow, freed_wake and fill if a gate is to change.
local breaker = {}
breaker.CLOSED, breaker.OPEN, breaker.HALF_OPEN = 0, 1, 2
breaker.STATES = { [0] = 'closed', 'open', 'half-open' }
breaker.FAILURE_RATE, breaker.FAILURE_STREAK, breaker.SLOW_CALL_RATE = 1, 2, 3
breaker.PROBE_FAILED, breaker.PROBE_TIMEOUT, breaker.PROBES_SLOW = 4, 5, 6
breaker.COOLDOWN_OVER, breaker.PROBES_PASSED, breaker.FORCED, breaker.FORCE_ENDED, breaker.RESET = 7, 8, 9, 10, 11
breaker.CAUSES = { 'failure rate', 'failure streak', 'slow-call rate', 'probe failed', 'probe timeout', 'probes slow',
  'cooldown over', 'probes passed', 'forced', 'force ended', 'reset' }
do
  local META = { 'state', 'cause', 'since', 'period', 'forced', 'ends', 'until_at', 'streak', 'epoch', 'passed', 'slow',
    'ramp', 'trips', 'row', 'heard', 'confirmed', 'workers', 'begun', 'doubt' }
  -- The rules' origin and the policy's version; of the trial, which is of the period `tried`, places of groups of
  -- tenants; of the life, calls, failures, microseconds that calls ran, and when the last failed; n and two digits for
  -- how often the breaker went from a state to another; the number of the tenant whose call made it, 0 for none's.
  local EXTRA = { 'origin', 'version', 'tried', 'failer', 'failed', 'passer', 'passer_too', 'calls', 'failures', 'ran',
    'failed_at', 'n00', 'n01', 'n02', 'n10', 'n11', 'n12', 'n20', 'n21', 'n22', 'maker' }
  local RULE_NAMES = { 'window', 'buckets', 'min_calls', 'failure_rate', 'failure_threshold', 'slow_call_rate',
    'success_threshold', 'max_probes', 'probe_timeout', 'open_base', 'open_max', 'reset_after' }
  local EVENTS_KEPT, BREAKER_CAP, DRAWN = 1000, 4096, 16
  local QUIET = 86400000000
  local RAMP_STEP, RAMP_STEPS, LONE_VOTE = 1000000, 7, 500000
  function reset.breaker() call.breakers = {} end

  function breaker.clock() return state_num('bt') end

  function breaker.rules(text)
    local rules, i = { text = text }, 0
    for n in string.gmatch(text, '[^|]+') do
      i = i + 1
      rules[RULE_NAMES[i]] = tonumber(n)
    end
    return rules
  end

  -- breaker.limit returns how many jobs may be in workers' hands at a time, nil for any number.
  function breaker.limit(f)
    if f.state == breaker.OPEN then return 0 end
    if f.state == breaker.HALF_OPEN then return f.rules.max_probes end
    if f.ramp > 0 then return f.rules.max_probes * 2 ^ f.ramp end
  end

  -- breaker.ends returns in how many microseconds time alone may end the state, or lets a lone vote count; -1 for never.
  function breaker.ends(f)
    local at = f.ends == 1 and f.until_at or f.doubt
    return at > 0 and math.max(0, at - breaker.clock()) or -1
  end

  -- numbers reads fields from a text; one that it does not have is 0.
  local function numbers(f, names, text)
    for _, name in ipairs(names) do f[name] = 0 end
    local i = 0
    for n in string.gmatch(text, '[^|]+') do
      i = i + 1
      if names[i] then f[names[i]] = tonumber(n) end
    end
  end

  -- breaker.untried forgets how probes of another period ended.
  function breaker.untried(f)
    f.tried, f.failer, f.failed, f.passer, f.passer_too = f.period, 0, 0, 0, 0
  end

  -- breaker.open returns a downstream's breaker, false for none. `was` is what its gate and its timer know.
  function breaker.open(downstream)
    local f = call.breakers[downstream]
    if f ~= nil then return f end
    f = false
    local key = call.prefix .. 'br:' .. downstream
    local v = redis.call('HMGET', key, 'm', 'c', 't', 'x')
    if v[1] then
      f = { name = downstream, key = key, rules = breaker.rules(v[2]), ring = v[3], groups = {} }
      numbers(f, META, v[1])
      numbers(f, EXTRA, v[4] or '')
      if f.tried ~= f.period then breaker.untried(f) end
      f.was = { period = f.period, limit = breaker.limit(f), ramp = f.ramp, doubt = f.doubt }
    end
    call.breakers[downstream] = f
    return f
  end

  -- breaker.guests returns the probes that are no jobs, by their fields.
  function breaker.guests(f)
    local calls, fields = {}, redis.call('HGETALL', f.key)
    for i = 1, #fields, 2 do
      if sub(fields[i], 1, 2) == 'p:' then
        local period, at = match(fields[i + 1], '^(%d+)|(%d+)$')
        calls[fields[i]] = { period = tonumber(period), at = tonumber(at) }
      end
    end
    return calls
  end

  -- oldest_probe returns when the oldest probe in flight began.
  local function oldest_probe(f)
    if f.state ~= breaker.HALF_OPEN then return nil end
    local oldest
    for _, guest in pairs(breaker.guests(f)) do
      if guest.period == f.period then oldest = math.min(oldest or 9e15, guest.at) end
    end
    local marks = state_num('nm') > 0 and redis.call('HVALS', keys.marks) or {}
    for _, mark in ipairs(marks) do
      local period, at, downstream = match(mark, '^(%d+)|(%d+)|(.*)$')
      if downstream == f.name and tonumber(period) == f.period then
        oldest = math.min(oldest or 9e15, tonumber(at))
      end
    end
    return oldest
  end

  -- forget lets a breaker go, with all that is kept of it.
  local function forget(f)
    redis.call('UNLINK', f.key)
    redis.call('SREM', keys.breakers, f.name)
    redis.call('ZREM', keys.due, 'b' .. f.name)
    call.earliest = nil
  end

  -- longest takes for an entry of a table of breakers the one of which nothing was heard for longer.
  local function longest(of, entry, f)
    if not of[entry] or f.heard < of[entry].heard then of[entry] = f end
  end

  -- make_room forgets a breaker of so many that are drawn: the closed one of which nothing was heard for longest and nothing is
  -- going on; where there is none, of the tenant whose calls made the most of them, two at least, the one of which nothing was
  -- heard for longest. What an operator has forced stays, and what a probe is in flight of. It reports whether there was one, and
  -- returns it where its gate is to change.
  local function make_room(now)
    local quiet, of, made, most = {}, {}, {}, nil
    for _, name in ipairs(redis.call('SRANDMEMBER', keys.breakers, DRAWN)) do
      local f = call.breakers[name] == nil and breaker.open(name)
      if f then
        call.breakers[name] = nil
        if f.state == breaker.CLOSED and f.forced == 0 and f.ramp == 0 and f.doubt == 0 then longest(quiet, 1, f) end
        if f.maker > 0 and f.forced == 0 and not oldest_probe(f) then
          longest(of, f.maker, f)
          made[f.maker] = (made[f.maker] or 0) + 1
          if made[f.maker] > 1 and (not most or made[f.maker] > made[most]) then most = f.maker end
        end
      end
    end
    if quiet[1] then
      forget(quiet[1])
      return true
    end
    local f = most and of[most]
    if not f then return false end
    breaker.enter(f, breaker.CLOSED, breaker.RESET, now, nil, { reason = 'too many breakers of one tenant' })
    forget(f)
    call.breakers[f.name] = false
    return true, f
  end

  -- breaker.make returns a new one, closed, that a tenant's call has made; nil when there are too many and none can go. The other
  -- is one that has gone for it and whose gate is to change.
  function breaker.make(downstream, rules, tenant, now)
    local gone
    if redis.call('SCARD', keys.breakers) >= BREAKER_CAP then
      local room
      room, gone = make_room(now)
      if not room then return nil end
    end
    redis.call('SADD', keys.breakers, downstream)
    local f = { name = downstream, key = call.prefix .. 'br:' .. downstream, rules = rules, ring = '', groups = {}, was = {} }
    numbers(f, META, '')
    numbers(f, EXTRA, '')
    f.maker = tenant
    f.since = breaker.clock()
    f.heard, f.confirmed, f.period = f.since, f.since, floor(f.since / 1000000)
    f.was.period, f.tried = f.period, f.period
    call.breakers[downstream] = f
    return f, gone
  end

  -- breaker.enter begins a period in a state that ends at until_at, nil for never, and tells of it.
  function breaker.enter(f, to, cause, redis_now, until_at, told)
    local from, clock = f.state, breaker.clock()
    f.state, f.cause, f.since, f.heard, f.period = to, cause, clock, clock, f.period + 1
    f.forced, f.ends, f.until_at = 0, until_at and 1 or 0, until_at or 0
    f.passed, f.slow, f.ramp, f.doubt = 0, 0, 0, 0
    breaker.untried(f)
    local way = 'n' .. format('%d%d', from, to)
    f[way] = f[way] + 1
    redis.call('XADD', keys.events, 'MAXLEN', '~', EVENTS_KEPT, '*', 'downstream', f.name, 'from', breaker.STATES[from],
      'to', breaker.STATES[to], 'cause', breaker.CAUSES[cause], 'reason', told and told.reason or '',
      'workers', format('%d', told and told.voters or 0), 'callers', format('%d', told and told.callers or 0),
      'at', format('%d', redis_now), 'period', format('%d', f.period),
      'until', until_at and format('%d', redis_now + until_at - clock) or '')
  end

  -- breaker.restart empties the fleet's window and those of the workers.
  function breaker.restart(f)
    f.ring, f.streak, f.epoch, f.doubt = '', 0, f.epoch + 1, 0
  end

  -- breaker.trip opens for a time that doubles with each trip in a row. Its jitter parts one downstream from
  -- another; it is made of the time, so that a script and its model agree.
  function breaker.trip(f, cause, redis_now, told)
    local clock = breaker.clock()
    if f.state == breaker.CLOSED and clock - f.since >= f.rules.reset_after then f.row = 0 end
    local full = math.min(f.rules.open_base * 2 ^ f.row, f.rules.open_max)
    local half = floor(full / 2)
    local jitter = redis_now % 1000003 * 104729 % 1000003 / 1000003
    f.trips, f.row = f.trips + 1, f.row + 1
    breaker.enter(f, breaker.OPEN, cause, redis_now, clock + half + floor(jitter * (full - half)), told)
  end

  function breaker.reporter(text)
    local sequence, at, epoch, streak, ring = match(text, '^(%d+)|(%d+)|(%d+)|(%d+)|(.*)$')
    return { sequence = tonumber(sequence), at = tonumber(at), epoch = tonumber(epoch), streak = tonumber(streak), ring = ring }
  end

  -- breaker.stored returns what stands in Redis of a breaker's workers and of its groups of tenants. It is read once a call.
  local function stored(f)
    if f.stored then return f.stored end
    f.stored = { reporters = {}, groups = {} }
    local fields = redis.call('HGETALL', f.key)
    for i = 1, #fields, 2 do
      local kind = sub(fields[i], 1, 2)
      if kind == 'w:' then f.stored.reporters[sub(fields[i], 3)] = breaker.reporter(fields[i + 1]) end
      if kind == 's:' then f.stored.groups[tonumber(sub(fields[i], 3))] = tenants.parse(fields[i + 1]) end
    end
    return f.stored
  end

  -- breaker.reporters returns every worker that is known of a downstream, the one whose call this is as it stands now.
  function breaker.reporters(f)
    local all = stored(f).reporters
    if f.reporter then all[f.worker] = f.reporter end
    return all
  end

  -- breaker.sums returns what each group of tenants counted, with what this call adds.
  function breaker.sums(f, index)
    local groups = stored(f).groups
    for g, t in pairs(f.groups) do groups[g] = t end
    return tenants.sums(f, groups, index)
  end

  function breaker.slice(f)
    return floor(breaker.clock() / floor(f.rules.window / f.rules.buckets))
  end

  -- met reports whether a rule is met by so many calls, or by the streak.
  local function met(f, rule, over, failed, timed, slow)
    local r = f.rules
    if rule == breaker.FAILURE_STREAK then return f.streak >= r.failure_threshold end
    if rule == breaker.FAILURE_RATE then return over >= r.min_calls and failed / over >= r.failure_rate end
    return timed >= r.min_calls and slow / timed >= r.slow_call_rate
  end

  -- breaker.vote reports whether a worker's own calls meet a rule: its rate, or so many failures in a row as the threshold, or
  -- as there were calls.
  function breaker.vote(f, rule, w, over, failed, timed, slow)
    if rule == breaker.FAILURE_STREAK then return over > 0 and w.streak >= math.min(over, f.rules.failure_threshold) end
    if rule == breaker.FAILURE_RATE then return over > 0 and failed / over >= f.rules.failure_rate end
    return timed > 0 and slow / timed >= f.rules.slow_call_rate
  end

  -- votes counts the workers that called the downstream in the window, and those whose own calls meet a rule.
  local function votes(f, rule, index)
    local callers, voters = 0, 0
    for _, w in pairs(breaker.reporters(f)) do
      local over, failed, timed, slow = 0, 0, 0, 0
      if w.epoch == f.epoch then over, failed, timed, slow = ring_sum(ring_parse(w.ring), index, f.rules.buckets) end
      if over > 0 or slow > 0 then
        callers = callers + 1
        if breaker.vote(f, rule, w, over, failed, timed, slow) then voters = voters + 1 end
      end
    end
    return callers, voters
  end

  -- alone reports whether there is no other worker, so that nobody else's report can be on its way. A guest is not
  -- registered, and never knows.
  local function alone(f)
    return not f.guest and redis.call('HLEN', keys.workers) <= 1
  end

  breaker.RULES = { breaker.FAILURE_STREAK, breaker.FAILURE_RATE, breaker.SLOW_CALL_RATE }
  breaker.SHARES = { [breaker.FAILURE_STREAK] = 'streak', [breaker.FAILURE_RATE] = 'rate', [breaker.SLOW_CALL_RATE] = 'slow' }

  -- tenants_agree reports whether a rule is met by the tenants without the one that meets it most, each weighing the same, or
  -- by the only one.
  local function tenants_agree(f, rule, index)
    local share = breaker.SHARES[rule]
    local callers, others = tenants.shares(f, share, breaker.sums(f, index))
    return callers == 0 or others >= tenants.least(f, share)
  end

  -- breaker.judge trips if a rule is met, a quorum votes for it, and more than one tenant's calls meet it if more than one
  -- called. The quorum is two of the workers that called the downstream in the window, or the only one, once others have
  -- had the time to report or where there are none.
  function breaker.judge(f, redis_now)
    local index, clock = breaker.slice(f), breaker.clock()
    local over, failed, timed, slow = ring_sum(ring_parse(f.ring), index, f.rules.buckets)
    f.doubt = 0
    for _, rule in ipairs(breaker.RULES) do
      if met(f, rule, over, failed, timed, slow) then
        local callers, voters = votes(f, rule, index)
        local sure = f.begun + math.min(LONE_VOTE, floor(f.rules.window / 2))
        if voters >= math.min(2, callers) and tenants_agree(f, rule, index) then
          if callers >= 2 or clock >= sure or alone(f) then
            breaker.trip(f, rule, redis_now, { callers = callers, voters = voters })
            return true
          end
          f.doubt = sure
        end
      end
    end
    return false
  end

  -- breaker.advance makes the change that is due by time alone, and reports whether it begins a period. A
  -- probe's time-out is asked for with the timer only.
  function breaker.advance(f, redis_now, oldest)
    local clock = breaker.clock()
    if f.ends == 1 and clock >= f.until_at then
      if f.state == breaker.CLOSED then
        breaker.enter(f, breaker.CLOSED, breaker.FORCE_ENDED, redis_now)
        breaker.restart(f)
      else
        breaker.enter(f, breaker.HALF_OPEN, f.forced == 1 and breaker.FORCE_ENDED or breaker.COOLDOWN_OVER, redis_now)
      end
      return true
    end
    if oldest and clock - oldest >= f.rules.probe_timeout then
      breaker.trip(f, breaker.PROBE_TIMEOUT, redis_now)
      return true
    end
    if f.ramp > 0 then
      f.ramp = 1 + floor((clock - f.since) / RAMP_STEP)
      if f.ramp > RAMP_STEPS then f.ramp = 0 end
    end
    return f.doubt > 0 and clock >= f.doubt and breaker.judge(f, redis_now)
  end

  -- arm sets the timer. A breaker that waits for a probe looks again after the time of one, so that the next
  -- probe's time-out is not missed.
  local function arm(f, redis_now, oldest)
    local clock, at = breaker.clock(), nil
    if f.ends == 1 then
      at = f.until_at
    elseif f.state == breaker.HALF_OPEN then
      at = (oldest or clock) + f.rules.probe_timeout
    elseif f.ramp > 0 or f.doubt > 0 then
      at = math.min(f.ramp > 0 and f.since + f.ramp * RAMP_STEP or 9e15, f.doubt > 0 and f.doubt or 9e15)
    elseif f.forced == 0 then
      at = f.heard + QUIET
    end
    redis.call('ZREM', keys.due, 'b' .. f.name)
    call.earliest = nil
    if at then due_add(keys.due, redis_now + at - clock, 'b' .. f.name) end
  end

  local function text_of(f, names)
    local texts = {}
    for i, field in ipairs(names) do texts[i] = format('%d', f[field]) end
    return table.concat(texts, '|')
  end

  -- breaker.save writes a breaker, further fields with it, and reports whether its gate is to change.
  function breaker.save(f, redis_now, fields)
    fields[#fields + 1] = 'm'
    fields[#fields + 1] = text_of(f, META)
    fields[#fields + 1] = 'x'
    fields[#fields + 1] = text_of(f, EXTRA)
    fields[#fields + 1] = 't'
    fields[#fields + 1] = f.ring
    fields[#fields + 1] = 'c'
    fields[#fields + 1] = f.rules.text
    redis.call('HSET', f.key, unpack(fields))
    if f.period ~= f.was.period or f.ramp ~= f.was.ramp or f.doubt ~= f.was.doubt then arm(f, redis_now) end
    return f.period ~= f.was.period or breaker.limit(f) ~= f.was.limit
  end

  -- breaker.due is its timer. It returns the breaker if its gate is to change. One of which nothing was heard for long
  -- is forgotten.
  function breaker.due(downstream, redis_now)
    local f = breaker.open(downstream)
    if not f then return nil end
    local oldest = oldest_probe(f)
    if not breaker.advance(f, redis_now, oldest) and f.state ~= breaker.OPEN and f.forced == 0 and f.ramp + f.doubt == 0 and not oldest
      and breaker.clock() - f.heard >= QUIET then
      redis.call('UNLINK', f.key)
      redis.call('SREM', keys.breakers, downstream)
      f.period, f.state, call.breakers[downstream] = f.period + 1, breaker.CLOSED, false
      return f
    end
    local follow = breaker.save(f, redis_now, {})
    arm(f, redis_now, oldest_probe(f))
    return follow and f
  end
end

-- follow: the gate of a downstream follows its breaker. While it is there, each job dispatched to the downstream counts
-- against it until it leaves the ready stream or another period begins.

-- gate_begin begins a period, named by a number that the downstream has not had before, with a limit of jobs at a
-- time, 0 for shut; nil takes the gate away.
local function gate_begin(name, limit, period)
  if not limit then return gate_remove(name) end
  if not gate(name) then gate_count(name, 1) end
  call.gates[name] = { limit = limit, held = 0, rest = format('%d', period) }
end

-- breaker_follow is for whoever has saved a change. It ends with freed_wake and fill.
local function breaker_follow(f)
  local name, limit = 'b:' .. f.name, breaker.limit(f)
  if f.period ~= f.was.period or not limit then
    gate_begin(name, limit, f.period)
  else
    gate(name).limit = limit
  end
  call.gates_dirty[name], call.freed[name] = true, true
end
