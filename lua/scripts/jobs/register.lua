-- register makes a worker known to its pool, with its slots and its lease, and fills the room that it brings, or puts back what it
-- leaves no slot for.
-- KEYS[1] state  hash; the partition's other keys share its hash tag and are named after it
-- ARGV[1] now  microseconds, "" for Redis TIME
-- ARGV[2] worker  name, new for each life of a process
-- ARGV[3] pool  id, a hash of mode and queues
-- ARGV[4] mode  w weighted, s strict
-- ARGV[5] queues  queue=weight, by commas, in order
-- ARGV[6] slots  jobs held at a time
-- ARGV[7] lease  microseconds
-- Reply {"registered" | "more"}
-- Never counts a worker's slots twice: the same call again changes nothing but the lease, and not that one while it is taken back.
-- @flag allow-oom
-- @relief
function scripts.register(KEYS, ARGV)
  local STATE, NOW, WORKER, POOL, MODE, QUEUES = KEYS[1], ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5]
  local SLOTS, LEASE = tonumber(ARGV[6]), tonumber(ARGV[7])
  local now = now_us(NOW)

  call_begin(now, { 'pool:' .. POOL })
  local pool = pool_open(POOL)
  if not pool then
    local created = redis.pcall('XGROUP', 'CREATE', call.prefix .. 'ready:' .. POOL, GROUP, '0', 'MKSTREAM')
    if not created.err then
      entry_ids_go_on(call.prefix .. 'ready:' .. POOL)
    elseif not match(created.err, 'BUSYGROUP') then -- else it is of a call that broke off
      return redis.error_reply(created.err)
    end
    local first = match(QUEUES, '=(%d+)')
    state_set('pool:' .. POOL, format('0|%s|1|%s|%s', MODE, first, QUEUES))
    call.pools[POOL] = nil
    pool = pool_open(POOL)
    for _, queue in ipairs(pool.queues) do
      local ids = state_get('pools:' .. queue)
      state_set('pools:' .. queue, ids and ids .. ' ' .. POOL or POOL)
    end
    state_set('pools', (state_get('pools') and state_get('pools') .. ' ' or '') .. POOL)
    due_add(keys.due, now + LEASE, 'c' .. POOL)
  end
  local known = worker_read(WORKER)
  if known and known.lease == 0 then LEASE = 0 end
  redis.call('HSET', keys.workers, WORKER, format('%s|%d|%d', POOL, SLOTS, LEASE))
  due_add(keys.due, now + LEASE, 'w' .. WORKER)
  pool.slots = pool.slots + SLOTS - (known and known.slots or 0)
  pool.touched = true
  call.refill_pools[POOL] = true
  for _, queue in ipairs(gate_kinds().o and pool.queues or {}) do -- Others of it have more slots elsewhere, too.
    if gate('o:' .. queue) then call.refill[queue] = true end
  end
  if known and known.slots > SLOTS then
    surplus_return(pool, now)
    freed_wake(now)
  end
  return { fill(now) and 'more' or 'registered' }
end
