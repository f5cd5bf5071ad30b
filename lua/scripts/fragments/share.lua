-- share: bounds that all partitions divide among them. `shares` maps the gate of each to "whole|units|of|partitions": of the
-- whole that the policy allows, this partition has units/of, at first 1/partitions, and those of all partitions add up to 1 at
-- most (balance.go). The whole is empty where the policy has the bound no more. The global bucket has no gate: callers bring the
-- even part of its rate, and `gm` is the multiple of it that this partition has. Bursts stay divided evenly.

local function share_parse(text)
  local whole, units, of, parts = match(text, '^([^|]*)|(%d+)|(%d+)|(%d+)$')
  return { whole = whole, units = tonumber(units), of = tonumber(of), parts = tonumber(parts) }
end

-- share_read returns what there is of a bound, nil for nothing.
local function share_read(name)
  local text = redis.call('HGET', keys.shares, name)
  return text and share_parse(text) or nil
end

local function share_is_even(s) return s.units * s.parts == s.of end

-- share_write forgets an even share of a bound that has gone: another one under its name begins with the same.
local function share_write(name, s)
  if s.whole == '' and share_is_even(s) then
    redis.call('HDEL', keys.shares, name)
  else
    redis.call('HSET', keys.shares, name, format('%s|%d|%d|%d', s.whole, s.units, s.of, s.parts))
  end
end

-- NO_SHARE is the limit of a cap of which this partition has no whole unit, as after an edit that lowered it far: shut until shares
-- are balanced, while 0 is a pause.
local NO_SHARE = -1

-- share_cap returns this partition's part of a cap.
local function share_cap(s)
  local units = floor(tonumber(s.whole) * s.units / s.of)
  return units > 0 and units or NO_SHARE
end

-- share_in_force returns the limit of the gate of a cap, under a pause the one that it leaves behind, and that as it is stored; nothing where there is none.
local function share_in_force(g)
  if not g or g.default then return nil end
  local limit = g.limit ~= 0 and match(gate_text(g), '^[^|]*') or match(g.rest, '^%d+|([^|]*)|')
  return tonumber(limit), limit
end

-- share_rate returns this partition's part of a rate.
local function share_rate(s)
  return tonumber(s.whole) * s.units / s.of
end

-- weigh: how much is runnable. Of more than SAMPLE tenants with weights it looks at as many, at random, and takes the others
-- for alike.
local SAMPLE = 64

-- tenants_weigh returns the sum of the weights of a class's runnable tenants.
local function tenants_weigh(q, c)
  local act = call.prefix .. 'act:' .. c - 1 .. ':' .. q.name
  local n = redis.call('ZCARD', act)
  if n == 0 or state_num('nw') == 0 then return n end
  local members = redis.call('ZRANDMEMBER', act, SAMPLE)
  local whose, sum = {}, 0
  for i, member in ipairs(members) do whose[i] = string.sub(member, 9) end
  for _, weight in ipairs(weights_of(q.names[c], whose)) do sum = sum + weight end
  return sum * n / #members
end

-- queue_weigh tells of each class of a queue, by spaces, its weight in the pattern and what is runnable, by a colon; of a
-- queue that is shut, that nothing is.
local function queue_weigh(q, shut)
  local classes = {}
  for c = 1, q.n do classes[c] = format('%d:%.17g', q.w[c], (shut or reserve_shut(q, c)) and 0 or tenants_weigh(q, c)) end
  return table.concat(classes, ' ')
end

-- hunger: who wants more of a bound than this partition's part of it.

-- GLOBALS are the buckets of the global limit: that of all, and that of those from whom a part of it is kept.
local GLOBALS = { 'gb', 'gbo' }

-- global_level returns the level of one of them, what is missing to its burst, and its rate, as they stand at a time;
-- nothing where it is full, or a window, which stays divided evenly. What is missing may be a little too much.
local function global_level(at, field)
  local stored = state_get(field)
  if not stored or window_is(stored) then return nil end
  local level, stamp, span, rate = bucket_parse(stored)
  local passed = math.max(0, at - stamp)
  if passed >= span then return nil end
  local gained = floor(passed * rate)
  return level + gained, math.max(0, span * rate - gained), rate
end

-- gate_hunger tells who waits at a gate, in the form of queue_weigh: of a queue whose cap is reached what is runnable there, of
-- a downstream how many waiters there are; nothing where nobody does, or where an operator has shut it.
local function gate_hunger(name)
  if not gate_is_rate(name) and (not gate_closed(name) or gate(name).limit == 0) then return '' end
  if byte(name) == 113 then
    local q = queue_open(sub(name, 3))
    for c = 1, q.n do
      if redis.call('EXISTS', call.prefix .. 'act:' .. c - 1 .. ':' .. q.name) == 1 then return queue_weigh(q) end
    end
    return ''
  end
  local waiters = 0
  for _, line in ipairs(redis.call('SMEMBERS', call.prefix .. 'gq:' .. name)) do
    waiters = waiters + redis.call('ZCARD', call.prefix .. 'gw:' .. name .. '|' .. line)
  end
  return waiters > 0 and format('1:%d', waiters) or ''
end

-- hunger is gate_hunger for whatever may be shared. Nobody waits at the global bucket: below half it counts as wanted.
local function hunger(name)
  if name ~= 'global' then return gate_hunger(name) end
  for _, field in ipairs(GLOBALS) do
    local level, missing = global_level(state_num('bt'), field)
    if level and level < math.max((level + missing) / 2, DISPATCH) then return '1:1' end
  end
  return ''
end

-- adaptive: limits that move by themselves between bounds of the policy. `adaptive` maps the gate of each to ADAPTIVE below, joined by |,
-- and behind them who froze it and why, as a hold has it (audit.lua), or nothing; of what an operator has set for a time also \2until|back. `own` is the policy's limit, `limit` what is in force
-- instead: over all partitions, where several share it. `number` grows with each look of the loop, `told` is the limit that the audit last
-- told, at told_at. `cause` may be cause~how many looks found too little to change. `na` says how many there are. Of a rate the four are in RATE_UNIT of a job a second.
-- (A gate l:global or l:q:QUEUE is none: it is how much of the global limit, or of those that name the queue, is in force, in thousandths of what
-- the policy says; clock.lua has that part among the scales.) While triggers reduce a limit `name` is back~name, back being what is in force when none does. Of a rate it is burst~push~eased~name: the burst of the policy in this partition, how much its receiver pushes back, a place in PUSHED or 0, and when that
-- eases, by the clock of buckets.
local RATE_UNIT = 1000000
-- PUSHED is which part of a rate is left by how much its receiver pushes back, 1 is none. Of the last, CRITICAL, a twentieth is, and no more
-- than a job a second: those that see whether it has ended.
local PUSHED = { 1, 0.8, 0.5, 0.2, 0.05 }
local ADAPTIVE_WORDS = 3
local ADAPTIVE = {
  'name', 'cause', 'why', 'own', 'least', 'most', 'limit', 'number', 'at', 'before', 'changed', 'raised', 'lowered', 'told', 'told_at',
}

-- adaptive_read returns what is kept of a gate, nil for nothing.
local function adaptive_read(gate_name)
  local text = redis.call('HGET', keys.adaptive, gate_name)
  if not text then return nil end
  local a, at = {}, 1
  for i, field in ipairs(ADAPTIVE) do
    local stop = string.find(text, '|', at, true)
    a[field] = i > ADAPTIVE_WORDS and tonumber(sub(text, at, stop - 1)) or sub(text, at, stop - 1)
    at = stop + 1
  end
  a.frozen = sub(text, at)
  local cause, dead_band = match(a.cause, '^(.*)~(%d+)$')
  a.cause, a.dead_band = cause or a.cause, tonumber(dead_band or 0)
  if gate_is_rate(gate_name) then
    a.burst, a.push, a.eased, a.name = match(a.name, '^(%d+)~(%d)~(%d+)~(.*)$')
    a.burst, a.push, a.eased = tonumber(a.burst), tonumber(a.push), tonumber(a.eased)
  end
  local back, reduced = match(a.name, '^(%d+)~(.*)$')
  if back then a.back, a.name = tonumber(back), reduced end
  return a
end

local function adaptive_write(gate_name, a)
  local parts = {}
  for i, field in ipairs(ADAPTIVE) do parts[i] = i > ADAPTIVE_WORDS and format('%d', a[field]) or a[field] end
  if a.dead_band > 0 then parts[2] = format('%s~%d', a.cause, a.dead_band) end
  if a.back then parts[1] = format('%d~%s', a.back, a.name) end
  if a.burst then parts[1] = format('%d~%d~%d~%s', a.burst, a.push, a.eased, parts[1]) end
  parts[#parts + 1] = a.frozen
  redis.call('HSET', keys.adaptive, gate_name, table.concat(parts, '|'))
end

-- adaptive_count returns how many there are. Unlike state_num it leaves a field that is to go as it is.
local function adaptive_count() return tonumber(state_get('na') or 0) end

-- adaptive_overridden returns until when an operator has set a limit, and what comes back then; nothing where none has.
local function adaptive_overridden(a)
  local until_us, back = match(a.frozen, '\2(%d+)|(%d+)$')
  return tonumber(until_us), tonumber(back)
end

-- limits_move reports whether it is limits of admission that a name is about, not a gate.
local LIMITS_WHOLE = 1000
local function limits_move(gate_name) return byte(gate_name) == 108 end

-- limits_apply puts a part of limits in force, in thousandths; nil for all of what the policy says. life is for how many microseconds, 0 for until
-- it is changed, nil for as long as what was. One that lasts longer has not changed the limits.
local function limits_apply(gate_name, limit, life)
  local at = state_num('bt')
  local scales, changed_at = scales_read(at)
  scales = scales or {}
  local before, ends = scales[gate_name], 0
  if life then
    ends = life > 0 and at + life or 0
  elseif before and not before.stays then
    ends = before.ends
  end
  local part = limit and limit < LIMITS_WHOLE and format('%.6g', limit / LIMITS_WHOLE) or nil
  local text = part and format('%s|%d|', part, ends)
  if (before and before.text) == text then return end
  scales[gate_name] = text and { part = tonumber(part), ends = ends, text = text, loop = true, stays = ends == 0 }
  scales_write(at, scales)
  if before and part and before.part == tonumber(part) then state_set('pat', changed_at + 0.5) end
end

local function adaptive_clamp(a, limit) return math.max(a.least, math.min(limit, a.most)) end

-- adaptive_text returns what is in force, as the policy would say it: of a rate also a burst that is as much less as the rate is.
local function adaptive_text(a)
  if not a.burst then return format('%d', a.limit) end
  local limit = floor(a.limit * (PUSHED[a.push] or 1))
  if a.push == #PUSHED then limit = math.min(limit, RATE_UNIT) end
  limit = math.max(1, limit)
  return format('%.17g|%d', limit / RATE_UNIT, math.max(DISPATCH, floor(a.burst * (limit / a.own))))
end

-- adaptive_want notes what the policy says of a gate, own~least~most/partitions~name of one that moves by itself, a rate's |burst before the /, and returns what is to be
-- in force, as for any other: of one that moves what it was, between its bounds. It needs `na` loaded.
local function adaptive_want(gate_name, text)
  local own, least, most, burst, parts, name = match(text or '', '^(%d+)~(%d+)~(%d+)|?(%d*)(/?%d*)~(.+)$')
  if not own then
    local left = adaptive_count()
    if left > 0 then
      left = left - redis.call('HDEL', keys.adaptive, gate_name)
      state_set('na', left > 0 and left)
    end
    return text
  end
  local a = adaptive_count() > 0 and adaptive_read(gate_name)
  if not a then
    a = { push = 0, eased = 0, dead_band = 0, cause = '', why = '', limit = tonumber(own), number = 0, at = 0, before = 0, changed = 0, raised = 0, lowered = 0,
      told = tonumber(own), told_at = 0, frozen = '' }
    state_add('na', 1)
  end
  a.name, a.own, a.least, a.most, a.burst = name, tonumber(own), tonumber(least), tonumber(most), tonumber(burst)
  a.limit = adaptive_clamp(a, a.limit)
  adaptive_write(gate_name, a)
  return adaptive_text(a) .. parts
end
