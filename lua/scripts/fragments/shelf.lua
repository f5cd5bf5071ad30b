-- @include wake
-- @include holds
-- @include pool
-- shelf: a downstream that hangs must not take every slot. While a pool holds a SHARE of its slots for one downstream and
-- has other tenants that are runnable, lanes of that downstream that come to the head go on the shelf: they wait at
-- h:DOWNSTREAM, as behind a gate. One comes back for each entry that leaves, as far as the share goes, and for each
-- dispatch beyond it; and as many as there is room for when the pool has no other work.
local SHARE = 0.5
function reset.shelf() call.refill_pools, call.shelf_more = {}, {} end

local function share_left(pool, downstream)
  return math.max(1, floor(pool.slots * SHARE)) - hold_count(pool.id, downstream)
end

-- others_run reports whether the pool has a runnable tenant that does not call the downstream alone. pool.others keeps what
-- was found until a move changes it.
local function others_run(pool, downstream)
  if pool.others == downstream then return true end
  for i = 1, pool.n do
    local q = queue_open(pool.queues[i])
    for c = 1, q.n do
      local cl = class_open(q, c)
      local name = cl.cq .. ':' .. downstream
      local alone = tonumber(redis.call('HGET', keys.runs, name) or 0) + (call.runs[name] or 0)
      local leaving = cl.plan and #cl.plan.gone or 0
      if redis.call('ZCARD', cl.act) - leaving > alone and not (gates_any() and gate_closed('q:' .. q.name)) then
        pool.others = downstream
        return true
      end
    end
  end
  return false
end

local function must_shelve(pool, downstream)
  return not pool.idle and share_left(pool, downstream) <= 0 and others_run(pool, downstream)
end

-- shelf_passed lets a lane come back for a dispatch beyond the share.
local function shelf_passed(pool, downstream)
  if downstream ~= '' and state_num('nh') > 0 and share_left(pool, downstream) < 0 then
    call.shelf_more[downstream] = (call.shelf_more[downstream] or 0) + 1
  end
end

local function shelves_wake(now)
  local names = {}
  for name in pairs(call.shelf_more) do names[#names + 1] = name end
  table.sort(names)
  for _, name in ipairs(names) do gate_wake('h:' .. name, now, call.shelf_more[name]) end
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
    local downstreams = redis.call('SMEMBERS', keys.shelves)
    table.sort(downstreams)
    for _, name in ipairs(downstreams) do woken = woken + gate_wake('h:' .. name, now, pool.room, only) end
    pool.idle, call.refill_pools[id] = true, true
  end
  return woken > 0
end
