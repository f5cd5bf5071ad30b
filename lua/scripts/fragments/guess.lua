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

-- wait_guess guesses the wait of a job with a tenant, a queue and a class, from 1, at a position in its lane, in
-- microseconds, -1 for unknown, as where something holds it back: the dispatches up to and with its own, at the queue's pace, and the way to the
-- handler. The pattern is walked from its phase until the job's class has had what is ahead. Of what it gives another
-- class meanwhile, newcomers take half at most, or the class must have it waiting.
local DELIVERY = 500 -- microseconds
local function wait_guess(path, lane, position)
  local q, c = queue_open(path.queue), path.class
  if q.pace == 0 then return -1 end
  local all = class_ahead(q, c, path, position)
  if held_back(path, lane) then return -1 end
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
