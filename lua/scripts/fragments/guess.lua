-- guess: how long a job waits.
-- class_ahead says how many jobs of its class are dispatched up to and with this one: of the tenants with a lower tag
-- one each, itself, and a round of all tenants for each job of its own before it; at most what waits. A tenant that
-- enters later goes behind the tags that are there. The lanes of a tenant that are open are taken to be as long as
-- the job's.
local OPEN = '(4000000000000000' -- below BLOCKED of lane.lua
local function class_ahead(q, c, path, position)
  if not path.runnable then
    local line = (c - 1) .. ':' .. q.name
    path.runnable = redis.call('ZCARD', call.prefix .. 'act:' .. line)
    local x = redis.call('HGET', call.prefix .. 'ten:' .. line, path.tenant)
    path.rank = x and redis.call('ZRANK', call.prefix .. 'act:' .. line, sub(x, 2, 9) .. path.tenant) or path.runnable
    path.lanes, path.mode, path.open = 1, x and sub(x, 1, 1), x and sub(x, 10)
    if x and sub(x, 10) == '*' then
      path.lanes = math.max(1, redis.call('ZCOUNT', call.prefix .. 'lanes:' .. line .. ':' .. path.tenant, '-inf', OPEN))
    end
  end
  return math.min(q.waiting[c], path.rank + 1 + (position * path.lanes - 1) * path.runnable)
end

-- held_back reports whether nobody knows when a job of a lane goes: its queue is paused, or its tenant or its lane
-- stands behind a gate or on a shelf. It is for after class_ahead.
local function held_back(path, lane)
  if path.mode ~= 'a' then return true end
  local pause = gate_kinds().q and gate('q:' .. path.queue)
  if pause and pause.limit <= 0 then return true end
  if byte(path.open) == 43 then return sub(path.open, 2) ~= lane end
  if path.open ~= '*' or not gates_any() and state_num('nh') == 0 then return false end -- no lane waits at a gate or on a shelf
  local at = redis.call('ZSCORE', call.prefix .. 'lanes:' .. (path.class - 1) .. ':' .. path.queue .. ':' .. path.tenant, lane)
  return at and score_of(at) >= BLOCKED
end

-- class_waits returns how many jobs of another class wait, 0 when all stand behind gates.
local function class_waits(q, i)
  if q.waiting[i] > 0 and gates_any() then
    q.runs = q.runs or {}
    q.runs[i] = q.runs[i] or redis.call('ZCARD', call.prefix .. 'act:' .. (i - 1) .. ':' .. q.name)
    if q.runs[i] == 0 then return 0 end
  end
  return q.waiting[i]
end

-- wait_at_pace returns how long it takes until a class has had so many dispatches, at the queue's pace, and the way to the handler, in
-- microseconds. The pattern is walked from its phase on. Of what it gives another class meanwhile, newcomers take half at most, or the
-- class must have it waiting.
local DELIVERY = 500 -- microseconds
local function wait_at_pace(q, c, all)
  local turns = math.ceil((all - (q.cur == c and q.left or 0)) / q.w[c])
  local passed = false -- the pattern has been at c: who comes now has had a turn less
  for k = 0, q.n - 1 do
    local i = (q.cur + k - 1) % q.n + 1
    if i == c then
      passed = k > 0
    elseif turns > 0 then
      local waits, served = class_waits(q, i), (passed and turns - 1 or turns) * q.w[i]
      if k == 0 then served = served - q.w[i] + q.left end
      if waits > 0 then all = all + math.min(served, waits + served / 2) end
    end
  end
  return math.floor(all * q.pace) + DELIVERY
end

-- wait_guess guesses the wait of a job with a tenant, a queue and a class, from 1, at a position in its lane, in microseconds, -1 for
-- unknown, as where something holds it back: until the dispatches up to and with its own.
local function wait_guess(path, lane, position)
  local q, c = queue_open(path.queue), path.class
  if q.pace == 0 then return -1 end
  local all = class_ahead(q, c, path, position)
  if held_back(path, lane) then return -1 end
  return wait_at_pace(q, c, all)
end

-- doomed: a job that would start after it may is refused before it takes a token, where its queue's policy says so (path.doomed, percent
-- of what it may wait). While there is a slot for it, and while nobody knows how long it would wait, none is.

-- slots_left returns how many slots of the pools that serve a queue nobody has, jobs that this call lets into the queue counted.
local function slots_left(q)
  if not q.room then
    q.room = 0
    for id in string.gmatch(state_get('pools:' .. q.name) or '', '%S+') do
      local pool = pool_open(id)
      if pool then q.room = q.room + math.max(0, pool.slots - redis.call('XLEN', pool.key)) end
    end
  end
  return q.room - (q.entering or 0)
end

-- way_shut reports whether a gate of the tenant or of the lane is closed.
local function way_shut(path, downstream)
  if not gates_any() then return false end
  for _, names in ipairs({ tenant_gates(path.tenant, path.queue), lane_gates(downstream) }) do
    for _, name in ipairs(names) do
      if gate_closed(name) then return true end
    end
  end
  return false
end

-- rounds returns how many dispatches of its class go before a job that stands behind so many of its tenant, whose rank is known. A
-- tenant of more weight than others has several a round; what one of less has is up to the others, of which nobody knows.
local function rounds(path, q, rank, runnable, before)
  local share = 1
  if before > 0 and state_num('nw') > 0 then
    local weights, all = weights_of(q.names[path.class], { path.tenant })
    share = math.min(1, all / weights[1])
  end
  return rank + math.floor(before * (1 + (runnable - 1) * share))
end

-- wait_foreseen guesses the wait of a job that is not in, in microseconds, -1 for unknown: as wait_guess does once it is, but by its own
-- place in its lane, and as if its tenant had no other lane, so that it is told too little rather than too much.
local function wait_foreseen(path, lane, score)
  local q, c = queue_open(path.queue), path.class
  if q.pace == 0 or q.stamp == 0 or way_shut(path, sub(lane, 2)) then return -1 end
  local pause = gate_kinds().q and gate('q:' .. q.name)
  if pause and pause.limit <= 0 then return -1 end
  local cl = class_open(q, c)
  local x = tenant_open(cl, path.tenant)
  local before = redis.call('ZCOUNT', lane_key(cl, path.tenant, lane), '-inf', format('%d', score))
  local runnable = redis.call('ZCARD', cl.act)
  local rank
  if not x then
    local kept = redis.call('ZSCORE', cl.idle, path.tenant)
    rank = redis.call('ZCOUNT', cl.act, '-inf', format('%.17g', math.max(q.V[c], kept and score_of(kept) or 0)))
    runnable = runnable + 1
  elseif x.mode ~= 'a' then
    return -1
  else
    if x.lane ~= lane and (x.lane == '*' or x.beside ~= '') then
      local at = redis.call('ZSCORE', lanes_key(cl, path.tenant), lane)
      if at and score_of(at) >= BLOCKED then return -1 end
    end
    rank = redis.call('ZRANK', cl.act, tenant_entry(x) .. path.tenant)
  end
  local wait = wait_at_pace(q, c, math.min(q.waiting[c], rounds(path, q, rank, runnable, before)) + 1)
  q.runs = nil -- fill may change it
  return wait
end

-- doomed_refusal returns the refusal of a job whose wait is too long, with how much.
local function doomed_refusal(job)
  local path = job.path
  if not path.doomed or job.start then return nil end
  local q = queue_open(path.queue)
  local last = job.flags % 2 == 1 and job.deadline or math.huge
  if q.wait > 0 then last = math.min(last, call.now + q.wait) end
  if last == math.huge or slots_left(q) > 0 then return nil end
  local wait = wait_foreseen(path, 'd' .. job.downstream, last)
  local most = math.floor((last - call.now) * path.doomed / 100)
  if wait > most then return format('doomed %d %d', wait, wait - most) end
end
