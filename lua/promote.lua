-- promote runs what is due: retries and delays, ended leases, passed deadlines, gates whose time is over, fills
-- that go on. One of N schedulers holds the timer lease.
-- KEYS[1] state  hash; the partition's other keys share its hash tag and are named after it
-- ARGV[1] now  microseconds, "" for Redis TIME
-- ARGV[2] owner  the scheduler's name
-- ARGV[3] timer_lease  microseconds
-- Reply {"promoted" | "more" | "held", microseconds until the next timer or until the other's lease ends, -1
--   for none, jobs moved, clock steps seen}
-- Never makes more than MOVES moves, and never ends a lease on a clock that has just stepped.
local STATE, NOW, OWNER, TIMER_LEASE = KEYS[1], ARGV[1], ARGV[2], tonumber(ARGV[3])
-- @include call
-- @include consumers
-- @include stepped
-- @include follow
-- @include shrink
-- @include suspended
-- @include rotate
-- @include relief
local now = now_us(NOW)

-- later_promote uses half of the moves: however many jobs are due at once, timers run, and workers get some of them.
local function later_promote()
  local keys = redis.call('ZRANGEBYSCORE', LATER, '-inf', format('%d', now), 'LIMIT', 0, math.ceil(moves / 2))
  if #keys == 0 then return end
  moves = moves - #keys
  redis.call('ZREM', LATER, unpack(keys))
  local records = redis.call('HMGET', JOBS, unpack(keys))
  for i, key in ipairs(keys) do job_return(key, records[i], now) end
end

-- lane_expire ends the jobs of a lane whose deadlines have passed, and arms the lane's timer anew.
local function lane_expire(timer)
  local class, queue, tenant, downstream = match(timer, '^d(%d+):([^:]*):([^:]*):(.*)$')
  local lane = 'd' .. downstream
  local q = queue_open(queue)
  local cl = class_open(q, class + 1)
  local key = lane_key(cl, tenant, lane)
  local members = redis.call('ZRANGEBYSCORE', key, '-inf', '(' .. format('%d', now), 'LIMIT', 0, moves)
  if #members > 0 then
    moves = moves - #members
    redis.call('ZREM', key, unpack(members))
    waiting_add(cl, lane, -#members)
    for _, member in ipairs(members) do
      local job = tenant .. ':' .. sub(member, 13)
      local rec = redis.call('HGET', JOBS, job)
      old_remove(job, rec)
      job_expire(q, job, rec, now)
    end
    lane_shrunk(cl, tenant, lane)
  end
  local head = redis.call('ZRANGE', key, 0, 0, 'WITHSCORES')
  if head[1] then due_add(DUE, score_of(head[2]) + 1, timer) end
end

-- gate_due ends a gate's time. A gate whose waiters are not all awake yet goes on waking.
local function gate_due(name)
  local g = gate(name)
  if g and match(name, '^[qtud]') and not g.default then
    local until_us, after, reason = match(g.rest, '^(%d+)|([^|]*)|(.*)$')
    until_us = tonumber(until_us)
    if until_us > 0 and until_us <= now then
      if after == '' then
        gate_remove(name)
      else
        g.limit, g.rest = tonumber(after), '0||' .. reason
        gates_dirty[name] = true
      end
    elseif until_us > now then
      due_add(DUE, until_us, 'g' .. name)
    end
  end
  freed[name] = true
end

-- letters_purge ends a queue's dead letters that are older than it keeps them.
local function letters_purge(queue)
  local _, age = queue_bounds(queue_open(queue))
  if age == 0 then return end
  local letters = P .. 'dead:' .. queue
  local old = redis.call('ZRANGEBYSCORE', letters, '-inf', format('%d', now - age), 'LIMIT', 0, moves)
  moves = moves - #old
  for _, key in ipairs(old) do letter_purge(key) end
  local oldest = redis.call('ZRANGE', letters, 0, 0, 'WITHSCORES')
  if oldest[1] then due_add(DUE, score_of(oldest[2]) + age, 'r' .. queue) end
end

-- pool_continue goes on with a pool for which moves ran out, while it had too much or too little.
local function pool_continue(id)
  local pool = pool_open(id)
  if not pool then return end
  surplus_return(pool, now)
  pool_close(pool)
  refill_pools[id] = true
end

local function timer_run(timer)
  local kind, name = sub(timer, 1, 1), sub(timer, 2)
  if kind == 'd' then
    lane_expire(timer)
  elseif kind == 'g' then
    gate_due(name)
  elseif kind == 'k' then
    freed[name] = true
  elseif kind == 'f' then
    pool_continue(name)
  elseif kind == 'b' then
    local f = breaker.due(name, now)
    if f then breaker.follow(f) end
  elseif kind == 'c' then
    consumers_audit(name, now)
  elseif kind == 'o' then
    depth_freed[name] = 'goes on'
  elseif kind == 'x' then
    local rec = redis.call('HGET', JOBS, name)
    if rec and spill_remove(depth_name(name, rec), name, rec) then
      job_expire(queue_open(record_queue(rec)), name, rec, now)
    end
  elseif kind == 'r' then
    letters_purge(name)
  elseif kind == 's' then
    redis.call('HDEL', SUSPENDED, name)
    state_set('np', redis.call('HLEN', SUSPENDED))
  elseif not worker_reclaim(name, true, now) then
    due_add(DUE, now, timer)
  end
end

call_begin(now, { 'promoter', 'rot', 'dw', 'eo', 'steps' })
local until_us, owner = match(state_get('promoter') or '0|', '^(%d+)|(.*)$')
until_us = tonumber(until_us)
if owner ~= OWNER and until_us >= now and until_us <= now + TIMER_LEASE then
  return { 'held', format('%d', until_us - now + 1), '0', '0' }
end
state_set('promoter', format('%d|%s', now + TIMER_LEASE, OWNER))
ended_rotate()
local stepped = state_num('step') == 1
if stepped then clock_stepped(now) end
later_promote()
-- Fills and gates that ran out of moves go on at once: their timers stand ahead only for the case that nobody calls.
local timers = redis.call('ZRANGEBYSCORE', DUE, '-inf', format('%d', now + CONTINUE_AFTER), 'WITHSCORES', 'LIMIT', 0, MOVES)
for i = 1, #timers, 2 do
  if moves == 0 then break end
  local kind = sub(timers[i], 1, 1)
  if score_of(timers[i + 1]) <= now or match(kind, '[fko]') then
    redis.call('ZREM', DUE, timers[i])
    timer_run(timers[i])
  end
end
freed_wake(now)
local continues = fill(now)
earliest = nil
local next_at = due_earliest()
local word = (continues or next_at <= now) and 'more' or 'promoted'
return { word, next_at < 9e15 and format('%d', math.max(0, next_at - now)) or '-1', format('%d', MOVES - moves),
  stepped and '1' or '0' }
