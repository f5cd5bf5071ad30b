-- @include wake
-- @include holds
-- @include pool
-- shelf: a downstream that hangs must not take every slot. While a pool holds a SHARE of its slots for one downstream and
-- may have other work, lanes of that downstream that come to the head go on the shelf: they wait at h:DOWNSTREAM, as
-- behind a gate. One comes back for each entry that leaves, and as many as there is room for when the pool has no
-- other work.
-- A queue whose jobs have all called one downstream for SOLE_AFTER, in a pool that had no other work, is its alone until
-- another job comes: then nothing is shelved.
local refill_pools = {}
local SHARE, SOLE_AFTER = 0.5, 1000000

local function share_left(pool, downstream)
  return math.max(1, floor(pool.slots * SHARE)) - hold_count(pool.id, downstream)
end

local function must_shelve(pool, downstream)
  if pool.idle or share_left(pool, downstream) > 0 then return false end
  for i = 1, pool.n do
    local q = queue_open(pool.queues[i])
    if not (q.sole and q.last == downstream) then return true end
  end
  return false
end

-- pool_alone returns the downstream that a pool has worked for alone, if that is the only one with lanes on the shelf.
local function pool_alone(pool, downstreams, now)
  for i = 1, pool.n do
    local q = queue_open(pool.queues[i])
    if #downstreams > 1 or q.last ~= downstreams[1] or now - q.since < SOLE_AFTER then return nil end
  end
  return downstreams[1]
end

-- pools_idle lets lanes come back in pools that have room and no other work, and reports whether there were any.
local function pools_idle(now)
  if state_num('nh') == 0 then return false end
  local ids, woken = {}, 0
  for id, pool in pairs(pools) do
    if pool and pool.room then ids[#ids + 1] = id end
  end
  table.sort(ids)
  for _, id in ipairs(ids) do
    local pool = pools[id]
    local downstreams = redis.call('SMEMBERS', SHELVES)
    table.sort(downstreams)
    local alone, only = pool_alone(pool, downstreams, now), {}
    for i = 1, pool.n do
      local q = queue_open(pool.queues[i])
      only[q.name] = true
      if alone then q.sole, q.touched = true, true end
    end
    for _, downstream in ipairs(downstreams) do
      woken = woken + gate_wake('h:' .. downstream, now, not alone and pool.room or nil, only)
    end
    pool.idle, refill_pools[id] = true, true
  end
  return woken > 0
end
