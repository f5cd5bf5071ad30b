-- @include lane
-- wake: waiters of a gate come back while it has free units: the lowest tags of each class of each queue, as
-- many as there are units. Every waiter woken is a move; a script makes at most MOVES, and what is left goes
-- on from a timer.
local MOVES = 64
local CONTINUE_AFTER = 50000
local moves, more = MOVES, false

local function moves_out(timer, now)
  due_add(DUE, now + CONTINUE_AFTER, timer)
  more = true
end

-- waiter_wake_tenant moves a tenant from the gate that opened to the other one if that is closed.
local function waiter_wake_tenant(cl, tenant, tag)
  local x = tenant_open(cl, tenant)
  for _, name in ipairs({ 't:' .. tenant, 'u:' .. tenant .. ':' .. cl.q.name }) do
    if gate_closed(name) then
      gate_park(name, cl.c - 1, cl.q.name, tag, tenant)
      return
    end
  end
  if x.lane == '*' and lane_blocked_all(cl, tenant) then
    x.mode = 'b'
    tenant_write(cl, tenant, x)
  else
    tenant_enter(cl, tenant, x)
  end
end

-- waiter_wake_lane reports whether the lane may use the unit: not while its tenant stands behind a gate of its own.
local function waiter_wake_lane(cl, member)
  local tenant, lane = match(member, '^([^:]*):(.*)$')
  local x = tenant_open(cl, tenant)
  local head = redis.call('ZRANGE', lane_key(cl, tenant, lane), 0, 0, 'WITHSCORES')
  redis.call('ZADD', lanes_key(cl, tenant), head[2], lane)
  if x.mode == 'b' then tenant_enter(cl, tenant, x) end
  return x.mode == 'a'
end

local function gate_wake(name, now)
  local g = gate(name)
  local units = g and g.limit - g.held or math.huge
  if units <= 0 then return end
  if byte(name) == 113 then
    refill[sub(name, 3)] = true
    return
  end
  local lines = redis.call('SMEMBERS', P .. 'gq:' .. name)
  table.sort(lines)
  for _, line in ipairs(lines) do
    local waiters = P .. 'gw:' .. name .. '|' .. line
    local class, queue = match(line, '^(%d+):(.*)$')
    local cl = class_open(queue_open(queue), class + 1)
    local woken = 0
    while woken < units do
      if moves == 0 then
        if redis.call('EXISTS', waiters) == 1 then return moves_out('g' .. name, now) end
        break
      end
      local w = redis.call('ZPOPMIN', waiters)
      if not w[1] then break end
      moves = moves - 1
      if byte(name) ~= 100 then
        waiter_wake_tenant(cl, w[1], score_of(w[2]))
        woken = woken + 1
      elseif waiter_wake_lane(cl, w[1]) then
        woken = woken + 1
      end
    end
    if redis.call('EXISTS', waiters) == 0 then redis.call('SREM', P .. 'gq:' .. name, line) end
  end
end
