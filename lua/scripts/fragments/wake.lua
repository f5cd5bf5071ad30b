-- @include lane
-- wake: waiters of a gate come back while it has free units: the lowest tags of each class of each queue, as
-- many as there are units; those of a rate, by a timer. Every waiter woken is a move; a script makes at most MOVES, and what is left goes
-- on from a timer.
--   wakes  HASH gate → when its timer k is due|CLASS:QUEUE from which on waiters are to wake: those before have had their turn
local MOVES = 64
local CONTINUE_AFTER = 50000
function reset.wake() call.moves, call.more = MOVES, false end

local function moves_out(timer, now)
  due_add(keys.due, now + CONTINUE_AFTER, timer)
  call.more = true
end

-- rate_arm sets the timer of a rate that has nothing left but waiters.
local function rate_arm(name, now)
  local g = gate(name)
  if g and g.burst then due_add(keys.due, now + bucket_wait(g, DISPATCH, state_num('bt')), 'g' .. name) end
end

-- waiter_park parks a waiter behind the first closed one of several gates, and reports whether there is one.
local function waiter_park(cl, names, tag, member, now)
  for _, name in ipairs(names) do
    if gate_closed(name) then
      gate_park(name, cl.c - 1, cl.q.name, tag, member)
      rate_arm(name, now)
      return true
    end
  end
end

-- waiter_wake_tenant moves a tenant from the gate that opened to another one if that is closed.
local function waiter_wake_tenant(cl, tenant, tag, now)
  local x = tenant_open(cl, tenant)
  if waiter_park(cl, tenant_gates(tenant, cl.q.name), tag, tenant, now) then return end
  if x.lane == '*' and tenant_settle(cl, tenant, x) == 'b' then
    x.mode = 'b'
    tenant_write(cl, tenant, x)
  else
    tenant_enter(cl, tenant, x)
  end
end

-- waiter_wake_lane reports whether the lane may use the unit: not while it or its tenant stands behind another gate.
local function waiter_wake_lane(cl, member, tag, now)
  local tenant, lane = match(member, '^([^:]*):(.*)$')
  if waiter_park(cl, lane_gates(sub(lane, 2)), tag, member, now) then return false end
  local x = tenant_open(cl, tenant)
  local lanes = lanes_key(cl, tenant)
  local head = redis.call('ZRANGE', lane_key(cl, tenant, lane), 0, 0, 'WITHSCORES')
  if x.lane ~= '*' then
    tenant_several(cl, tenant, x, lane, head[2])
  elseif x.mode == 'b' then
    redis.call('ZREM', lanes, lane)
    x.beside, x.lane = redis.call('EXISTS', lanes) == 1 and '+' or '', lane
    tenant_enter(cl, tenant, x)
  else
    redis.call('ZADD', lanes, head[2], lane)
  end
  return x.mode == 'a'
end

-- gate_wake wakes as many waiters of each line as the gate has units, and at most `most`; only those of some queues, if
-- these are given; only those of the line `from` and those after it, if that is given. It returns how many have left the gate.
local function gate_wake(name, now, most, only, from)
  local g = gate(name)
  local units = math.min(g and gate_units(g) or math.huge, most or math.huge)
  if byte(name) == 113 then
    if units > 0 then call.refill[sub(name, 3)] = true end
    return 0
  end
  if units <= 0 and not g.burst then return 0 end
  local lines = redis.call('SMEMBERS', call.prefix .. 'gq:' .. name)
  if units <= 0 then
    if #lines > 0 then rate_arm(name, now) end
    return 0
  end
  table.sort(lines)
  local left = 0
  for _, line in ipairs(lines) do
    local waiters = call.prefix .. 'gw:' .. name .. '|' .. line
    local class, queue = match(line, '^(%d+):(.*)$')
    local cl = class_open(queue_open(queue), class + 1)
    local woken = (only and not only[queue] or from and line < from) and units or 0
    while woken < units do
      if call.moves == 0 then
        if redis.call('EXISTS', waiters) == 1 then
          moves_out('k' .. name, now)
          redis.call('HSET', keys.wakes, name, format('%d|%s', now + CONTINUE_AFTER, line))
          return left
        end
        break
      end
      local w = redis.call('ZPOPMIN', waiters)
      if not w[1] then break end
      call.moves, left = call.moves - 1, left + 1
      if not match(name, '^[dbsh]') then
        waiter_wake_tenant(cl, w[1], score_of(w[2]), now)
        woken = woken + 1
      elseif waiter_wake_lane(cl, w[1], score_of(w[2]), now) then
        woken = woken + 1
      end
    end
    gate_tidy(name, line)
  end
  return left
end
