-- timers: what becomes of those that are due (due.lua).

-- lane_expire ends the jobs of a lane whose deadlines have passed, and arms the lane's timer anew.
local function lane_expire(timer, now)
  local class, queue, tenant, downstream = match(timer, '^d(%d+):([^:]*):([^:]*):(.*)$')
  local lane = 'd' .. downstream
  local q = queue_open(queue)
  local cl = class_open(q, class + 1)
  local key = lane_key(cl, tenant, lane)
  local members = redis.call('ZRANGEBYSCORE', key, '-inf', '(' .. format('%d', now), 'LIMIT', 0, call.moves)
  if #members > 0 then
    call.moves = call.moves - #members
    redis.call('ZREM', key, unpack(members))
    waiting_add(cl, lane, -#members)
    for _, member in ipairs(members) do
      local job = tenant .. ':' .. sub(member, 13)
      local rec = redis.call('HGET', keys.jobs, job)
      if rec then
        old_remove(job, rec)
        job_expire(q, job, rec, now)
      else
        job_gone(job, queue)
      end
    end
    lane_shrunk(cl, tenant, lane)
  end
  local head = redis.call('ZRANGE', key, 0, 0, 'WITHSCORES')
  if head[1] then due_add(keys.due, score_of(head[2]) + 1, timer) end
end

-- gate_due ends a gate's time. A gate whose waiters are not all awake yet goes on waking.
local function gate_due(name, now)
  local g = gate(name)
  if g and match(name, '^[qtud]') and not g.default then
    local until_us, after, reason = match(g.rest, '^(%d+)|([^|]*)|(.*)$')
    until_us = tonumber(until_us)
    if until_us > 0 and until_us <= now then
      if after == '' then
        gate_remove(name)
      else
        gate_limited(g, after)
        g.rest = '0||' .. reason
        gate_again(name)
        call.gates_dirty[name] = true
      end
    elseif until_us > now then
      due_add(keys.due, until_us, 'g' .. name)
    end
  end
  call.freed[name] = true
end

-- letters_purge ends a queue's dead letters that are older than it keeps them.
local function letters_purge(queue, now)
  local _, age = queue_bounds(queue_open(queue))
  if age == 0 then return end
  local letters = call.prefix .. 'dead:' .. queue
  local old = redis.call('ZRANGEBYSCORE', letters, '-inf', format('%d', now - age), 'LIMIT', 0, call.moves)
  call.moves = call.moves - #old
  for _, key in ipairs(old) do letter_end(key, 'purged', queue) end
  letters_arm(queue)
end

-- letters_look sets the timers of queues that go by the settings of all others, some LETTERS_LOOKED of them: it begins, and says where it is to
-- go on, with a cursor of HSCAN. Of a queue that this call makes it knows nothing yet, and of that letters have set it as they came.
local LETTERS_LOOKED = 256
local function letters_look(from, now)
  local found = redis.call('HSCAN', call.state, from == '' and '0' or from, 'MATCH', 'q:*', 'COUNT', LETTERS_LOOKED)
  for i = 1, #found[2], 2 do
    local queue = sub(found[2][i], 3)
    if not state_get('cfg:' .. queue) then letters_arm(queue) end
  end
  if found[1] ~= '0' then due_add(keys.due, now, 'r*' .. found[1]) end
end

-- wake_continue goes on with the waiters of a gate where moves ran out when its timer was set, unless all are to wake anyway.
local function wake_continue(name, at)
  local due, line = match(redis.call('HGET', keys.wakes, name) or '', '^(%d+)|(.*)$')
  redis.call('HDEL', keys.wakes, name)
  call.freed[name] = call.freed[name] or tonumber(due) == at and line or true
end

-- pool_continue goes on with a pool for which moves ran out, while it had too much or too little.
local function pool_continue(id, now)
  local pool = pool_open(id)
  if not pool then return end
  surplus_return(pool, now)
  pool_close(pool)
  call.refill_pools[id] = true
end

-- timer_run runs a timer that was due at a time and has been taken out.
local function timer_run(timer, at, now)
  local kind, name = sub(timer, 1, 1), sub(timer, 2)
  if kind == 'd' then
    lane_expire(timer, now)
  elseif kind == 'g' then
    gate_due(name, now)
  elseif kind == 'k' then
    wake_continue(name, at)
  elseif kind == 'f' then
    pool_continue(name, now)
  elseif kind == 'b' then
    local f = breaker.due(name, now)
    if f then breaker_follow(f) end
  elseif kind == 'c' then
    consumers_audit(name, now)
  elseif kind == 'o' then
    call.depth_freed[name] = 'goes on'
  elseif kind == 'x' then
    local rec = redis.call('HGET', keys.jobs, name)
    if rec and record_far(rec) then
      redis.call('SADD', keys.recall, name)
    elseif rec and spill_remove(depth_name(name, rec), name, rec) then
      job_expire(queue_open(record_queue(rec)), name, rec, now)
    end
  elseif kind == 'r' and byte(name) == 42 then
    letters_look(sub(name, 2), now)
  elseif kind == 'r' then
    letters_purge(name, now)
  elseif kind == 's' then
    redis.call('HDEL', keys.suspended, name)
    state_set('np', redis.call('HLEN', keys.suspended))
  elseif not worker_reclaim(name, true, now) then
    due_add(keys.due, now, timer)
  end
end

-- stepped: what a step of the clock asks for.

-- wakes_soon has the wakes that moves ran out of go on, those of gates too that nobody keeps while nothing counts against them.
local function wakes_soon(now)
  local wakes = redis.call('HGETALL', keys.wakes)
  for i = 1, #wakes, 2 do
    local timer = 'k' .. wakes[i]
    if redis.call('ZSCORE', keys.due, timer) then
      redis.call('ZADD', keys.due, format('%d', now), timer)
      redis.call('HSET', keys.wakes, wakes[i], format('%d', now) .. match(wakes[i + 1], '|.*$'))
    end
  end
end

-- look_again lets everything look again that goes by another clock, or that was to go on at once, and whose timer the old clock may
-- have put far ahead: breakers, fills, spilled jobs, and waiters of rates and of open gates.
local function look_again(now)
  local timers = {}
  for _, downstream in ipairs(redis.call('SMEMBERS', keys.breakers)) do timers[#timers + 1] = 'b' .. downstream end
  for id in string.gmatch(state_get('pools') or '', '%S+') do timers[#timers + 1] = 'f' .. id end
  for _, name in ipairs(redis.call('SMEMBERS', keys.spills)) do timers[#timers + 1] = 'o' .. name end
  for _, account in ipairs(redis.call('SMEMBERS', keys.accounts)) do timers[#timers + 1] = 'gs:' .. account end
  for _, timer in ipairs(timers) do redis.call('ZADD', keys.due, 'XX', format('%d', now), timer) end
  wakes_soon(now)
  for _, name in ipairs(redis.call('HKEYS', keys.gates)) do call.freed[name] = true end
  for _, downstream in ipairs(redis.call('SMEMBERS', keys.shelves)) do call.freed['h:' .. downstream] = true end
end

-- clock_stepped arms every registration anew.
local function clock_stepped(now)
  look_again(now)
  local all = redis.call('HGETALL', keys.workers)
  for i = 1, #all, 2 do
    local lease = match(all[i + 1], '(%d+)$')
    redis.call('ZADD', keys.due, format('%d', now + lease), 'w' .. all[i])
  end
  state_add('steps', 1)
  call.earliest = nil
end
