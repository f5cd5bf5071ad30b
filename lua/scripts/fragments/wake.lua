-- wake: waiters of a gate come back while it has free units: the lowest tags of each class of each queue, as
-- many as there are units; those of a rate, by a timer. Every waiter woken is a move; a script makes at most MOVES, and what is left goes
-- on from a timer.
--   wakes  HASH gate → when its timer k is due|CLASS:QUEUE from which on waiters are to wake: those before have had their turn
local MOVES = 64
local CONTINUE_AFTER = 50000

-- names_sorted returns the keys of a table in their order.
local function names_sorted(set)
  local names = {}
  for name in pairs(set) do names[#names + 1] = name end
  if names[2] then table.sort(names) end
  return names
end

local function moves_out(timer, now)
  due_add(keys.due, now + CONTINUE_AFTER, timer)
  call.more = true
end

-- rate_arm sets the timer of a rate that has nothing left but waiters.
local function rate_arm(name, now)
  local g = gate(name)
  if g and g.burst then due_add(keys.due, now + bucket_wait(g.level, g.stamp, g.rate, DISPATCH, state_num('bt')), 'g' .. name) end
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
  if byte(name) == 111 then
    call.refill[sub(name, 3)] = true
    return 0
  end
  local g, lines = gate(name), nil
  if g and g.late then -- Before its record is asked for.
    lines = redis.call('SMEMBERS', call.prefix .. 'gq:' .. name)
    if #lines == 0 then return 0 end
  end
  local units = math.min(g and gate_units(g) or math.huge, most or math.huge)
  if byte(name) == 113 then
    if units > 0 then call.refill[sub(name, 3)] = true end
    return 0
  end
  if units <= 0 and not g.burst then return 0 end
  lines = lines or redis.call('SMEMBERS', call.prefix .. 'gq:' .. name)
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

-- holds: HASH POOL:SERVICE → how many entries of the pool's ready stream call the service.

local function hold_add(pool_id, service, n)
  if service == '' then return end
  local name = pool_id .. ':' .. service
  call.hold_changes[name] = (call.hold_changes[name] or 0) + n
end

local function hold_count(pool_id, service)
  local name = pool_id .. ':' .. service
  if not call.holds[name] then call.holds[name] = tonumber(redis.call('HGET', keys.holds, name) or 0) end
  return call.holds[name] + (call.hold_changes[name] or 0)
end

local function holds_write()
  if not next(call.hold_changes) then return end
  for name, n in pairs(call.hold_changes) do
    if n ~= 0 and redis.call('HINCRBY', keys.holds, name, n) <= 0 then redis.call('HDEL', keys.holds, name) end
  end
  call.holds, call.hold_changes = {}, {}
end

-- shelf: a service that hangs must not take every slot. While a pool holds a SHARE of its slots for one service and
-- has other tenants that are runnable, lanes of that service that come to the head go on the shelf: they wait at
-- h:SERVICE, as behind a gate. One comes back for each entry that leaves, as far as the share goes, and for each
-- dispatch beyond it; and as many as there is room for when the pool has no other work.
local SHARE = 0.5

local function share_left(pool, service)
  return math.max(1, floor(pool.slots * SHARE)) - hold_count(pool.id, service)
end

-- others_run reports whether the pool has a runnable tenant that does not call the service alone, and that may take a slot. pool.others
-- keeps what was found until a move changes it.
local function others_run(pool, service)
  if pool.others == service then return true end
  for i = 1, pool.n do
    local q = queue_open(pool.queues[i])
    for c = 1, q.n do
      local cl = class_open(q, c)
      local name = cl.cq .. ':' .. service
      local alone = tonumber(redis.call('HGET', keys.runs, name) or 0) + (call.runs[name] or 0)
      if class_runs(cl) > alone and not (gates_any() and (gate_closed('q:' .. q.name) or reserve_shut(q, c))) then
        pool.others = service
        return true
      end
    end
  end
  return false
end

local function must_shelve(pool, service)
  return not pool.idle and share_left(pool, service) <= 0 and others_run(pool, service)
end

-- shelf_passed lets a lane come back for a dispatch beyond the share.
local function shelf_passed(pool, service)
  if service ~= '' and state_num('nh') > 0 and share_left(pool, service) < 0 then
    call.shelf_more[service] = (call.shelf_more[service] or 0) + 1
  end
end

local function shelves_wake(now)
  if not next(call.shelf_more) then return end
  for _, name in ipairs(names_sorted(call.shelf_more)) do gate_wake('h:' .. name, now, call.shelf_more[name]) end
  call.shelf_more = {}
end

-- pools_idle lets lanes come back in pools that have room and no other work, and reports whether there were any.
local function pools_idle(now)
  if state_num('nh') == 0 then return false end
  local ids, woken = {}, 0
  for id, pool in pairs(call.pools) do
    if pool and pool.room then ids[#ids + 1] = id end
  end
  table.sort(ids)
  for _, id in ipairs(ids) do
    local pool, only = call.pools[id], {}
    for i = 1, pool.n do only[pool.queues[i]] = true end
    local services = redis.call('SMEMBERS', keys.shelves)
    table.sort(services)
    for _, name in ipairs(services) do woken = woken + gate_wake('h:' .. name, now, pool.room, only) end
    pool.idle, call.refill_pools[id] = true, true
  end
  return woken > 0
end

-- freed: gates that have a unit more, or are gone, wake their waiters before the fill: name → true, or the line from which on.

-- shelves_pass_on lets a lane come back for each entry that left, as far as the share goes. shelf_freed counts them by
-- pool and service.
local function shelves_pass_on(now)
  if not next(call.shelf_freed) then return end
  for _, name in ipairs(names_sorted(call.shelf_freed)) do
    local id, service = match(name, '^([^:]*):(.*)$')
    local pool = state_num('nh') > 0 and pool_open(id)
    local units = pool and math.min(call.shelf_freed[name], share_left(pool, service)) or 0
    if units > 0 then gate_wake('h:' .. service, now, units) end
  end
  call.shelf_freed = {}
end

local function freed_wake(now)
  if next(call.freed) then
    for _, name in ipairs(names_sorted(call.freed)) do gate_wake(name, now, nil, nil, call.freed[name] ~= true and call.freed[name] or nil) end
    call.freed = {}
  end
  shelves_pass_on(now)
end

function reset.wake()
  call.moves, call.more = MOVES, false
  call.freed, call.shelf_freed = {}, {}
  call.holds, call.hold_changes = {}, {}
  call.refill_pools, call.shelf_more = {}, {}
end
