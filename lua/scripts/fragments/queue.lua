-- queue: a queue's settings and dynamics. State fields:
--   cfg:QUEUE    name=weight,…|horizon|expired|wait|overflow|poison|age|letters    set by policy; cfg:* is of every other queue,
--                with no overflow (that is *:* of depth.lua), and the default is below: classes, microseconds, dead or drop, the longest wait in microseconds (0 for none), what
--                depth.lua says of overflow, lost deliveries that make a job poison, how long dead letters are kept in
--                microseconds (0 for ever) and how many
--   q:QUEUE      Q, then cur, left, pace, stamp, V₁, n₁, V₂, n₂… as doubles, the lowest byte first; a text with | between
--                where the core is texts. The pattern's phase; the microseconds from one dispatch to the next while jobs
--                wait, and the time of the last (0 when none does); of each class the virtual time and the number of
--                waiting jobs
--   nq           the number of queues that have a q: field
--   pools:QUEUE  ids of the pools that serve it, by spaces
-- Classes count from 1 here, from 0 in keys and records.
local DEFAULT_QUEUE = 'high=3,medium=2,low=1|3600000000|dead|0|-|3|0|100000'

local function config_parse(text)
  local q = { w = {}, names = {}, n = 0 }
  local classes, horizon, expired, wait, own, rest = match(text, '^([^|]*)|(%d+)|(%a+)|(%d+)|([^|]*)|(.*)$')
  q.horizon, q.expired, q.wait, q.overflow, q.rest = tonumber(horizon), expired, tonumber(wait), own, rest
  for class, weight in string.gmatch(classes, '([^=,]+)=(%d+)') do
    q.n = q.n + 1
    q.names[q.n], q.w[q.n] = class, tonumber(weight)
  end
  return q
end
local CONFIGS = memory(config_parse)

local function queue_config(q, text)
  local of = remembered(CONFIGS, text)
  q.horizon, q.expired, q.wait, q.overflow, q.rest = of.horizon, of.expired, of.wait, of.overflow, of.rest
  q.w, q.names, q.n = of.w, of.names, of.n
end

-- queue_bounds reads what only few calls need.
local function queue_bounds(q)
  local poison, age, letters = match(q.rest, '^(%d+)|(%d+)|(%d+)$')
  return tonumber(poison), tonumber(age), tonumber(letters)
end

-- queue_numbers reads a q: field, packed or a text of data that is not; {} of none.
local PACKED_QUEUE = 'Q'
local function queue_numbers(v)
  local numbers = {}
  if not v then return numbers end
  if sub(v, 1, 1) == PACKED_QUEUE then
    local n = (#v - 1) / 8
    numbers = { struct.unpack('<' .. string.rep('d', n), v, 2) }
    numbers[n + 1] = nil -- where it ended
    return numbers
  end
  for x in string.gmatch(v, '[^|]+') do numbers[#numbers + 1] = tonumber(x) end
  return numbers
end

-- queue_text writes them.
local function queue_text(numbers)
  if state_packed() then return PACKED_QUEUE .. struct.pack('<' .. string.rep('d', #numbers), unpack(numbers)) end
  for i, v in ipairs(numbers) do numbers[i] = number_text(v) end
  return table.concat(numbers, '|')
end

local function queue_open(name)
  local q = call.queues[name]
  if q then return q end
  q = { name = name, classes = {}, V = {}, waiting = {}, dispatched = 0 }
  queue_config(q, state_get('cfg:' .. name) or state_get('cfg:*') or DEFAULT_QUEUE)
  local numbers = queue_numbers(state_get('q:' .. name))
  q.cur, q.left, q.pace, q.stamp = numbers[1] or 1, numbers[2] or q.w[1], numbers[3] or 0, numbers[4] or 0
  q.stored_pace, q.fresh = q.pace, not numbers[1]
  if q.cur > q.n then q.cur, q.left = 1, q.w[1] end
  for c = 1, q.n do
    q.V[c], q.waiting[c] = numbers[2 * c + 3] or 0, numbers[2 * c + 4] or 0
  end
  call.queues[name] = q
  return q
end

-- record_in returns the record of a job that enters a lane of a queue. Its class may be gone: an edit looks whether jobs wait in it, not whether they run, are put off or
-- kept aside. Then it is of the last class that there is.
local function record_in(q, key, rec)
  if byte(rec, 3) < q.n then return rec end
  rec = sub(rec, 1, 2) .. char(q.n - 1) .. sub(rec, 4)
  redis.call('HSET', keys.jobs, key, rec)
  return rec
end

-- queue_known reports whether the policy names a queue or a worker serves it.
local function queue_known(name)
  return state_get('cfg:' .. name) or state_get('pools:' .. name)
end

-- group: the consumer group of every ready stream.
local GROUP = 'g'

-- pool: workers that serve the same queues.
--   pool:POOL  slots|mode|cur|left|queue=weight,…   mode w weighted or s strict; pools names all
--   ready:POOL STREAM of entries j key, r record, p period of a breaker if there is one; group g

local function spec_parse(spec)
  local of = { w = {}, queues = {}, n = 0 }
  for queue, weight in string.gmatch(spec, '([^=,]+)=(%d+)') do
    of.n = of.n + 1
    of.queues[of.n], of.w[of.n] = queue, tonumber(weight)
  end
  return of
end
local SPECS = memory(spec_parse)

local function pool_open(id)
  local p = call.pools[id]
  if p == nil then
    local v = state_get('pool:' .. id)
    p = false
    if v then
      local slots, mode, cur, left, spec = match(v, '^(%d+)|(%a)|(%d+)|(%d+)|(.*)$')
      p = { id = id, key = call.prefix .. 'ready:' .. id, slots = tonumber(slots), mode = mode, cur = tonumber(cur),
        left = tonumber(left), spec = spec }
      local of = remembered(SPECS, spec)
      p.w, p.queues, p.n = of.w, of.queues, of.n
    end
    call.pools[id] = p
  end
  return p
end

local function pool_write(p)
  state_set('pool:' .. p.id, format('%d|%s|%d|%d|%s', p.slots, p.mode, p.cur, p.left, p.spec))
end

-- pattern: of Σ weights consecutive picks, w[i] are i's, in order, while all can run; one that cannot forfeits
-- the rest of its turn. pattern_next only looks, and returns what it finds with what can_run says of it; pattern_commit moves the phase.
local function pattern_next(p, can_run)
  if p.left > 0 then
    local found, of = can_run(p, p.cur)
    if found then return p.cur, found, of end
  end
  for k = 1, p.n do
    local i = (p.cur + k - 1) % p.n + 1
    local found, of = can_run(p, i)
    if found then return i, found, of end
  end
end

local function pattern_commit(p, i)
  if i == p.cur and p.left > 0 then
    p.left = p.left - 1
  else
    p.cur, p.left = i, p.w[i] - 1
  end
end

-- tally: what queues did in this call is written once.
local PACE_SPAN, PACE_STEP = 32, 3

-- queue_tally folds the dispatches of this call into the pace: an exponential average over PACE_SPAN dispatches of
-- the time between two, counted only while the queue is busy: jobs wait for room. An idle queue says nothing of how
-- fast it could be, nor does one whose jobs all stand behind gates. A time counts as PACE_STEP times the average at
-- most, or one pause would stand for many dispatches.
local function queue_tally(q, now)
  if q.dispatched > 0 and q.stamp > 0 and now > q.stamp then
    local pace = (now - q.stamp) / q.dispatched
    local old = q.pace > 0 and math.exp(-q.dispatched / PACE_SPAN) or 0
    if q.pace > 0 then pace = math.min(pace, PACE_STEP * q.pace) end
    q.pace = q.pace * old + pace * (1 - old)
  end
  if not q.busy then
    q.stamp = 0
  elseif q.stamp == 0 or q.dispatched > 0 or now < q.stamp then
    q.stamp = now
  end
  q.dispatched = 0
end

local function queue_write(now)
  for name, q in pairs(call.queues) do
    if q.touched then
      if q.fresh then
        state_add('nq', 1)
        q.fresh = false
      end
      queue_tally(q, now)
      if q.pace ~= q.stored_pace then q.stored_pace = tonumber(format('%.6g', q.pace)) end
      local numbers = { q.cur, q.left, q.stored_pace, q.stamp }
      for c = 1, q.n do
        if q.waiting[c] == 0 then q.V[c] = 0 end -- No tag is left that it could be compared with, and doubles have no room for one that only grows.
        numbers[2 * c + 3], numbers[2 * c + 4] = q.V[c], q.waiting[c]
      end
      state_set('q:' .. name, queue_text(numbers))
      q.touched = false
    end
  end
end

function reset.queue()
  call.queues = {}
  call.pools = {}
end
