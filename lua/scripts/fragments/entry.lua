-- @include freed
-- @include record
-- @include capnames
-- @include gatesload
-- entry: entries of a ready stream. Whoever removes one gives its units back to the gates and the room to the
-- pool. XACK and XCLAIM check no owner, so a lease is the worker's, and an entry that left is gone for all.
-- `started` maps a job that was lost before to the worker whose handler has begun it again: only then is the job under
-- suspicion if that worker is lost too. `begun` is how many such a worker runs, and of which group (reclaim.lua), as n|group.

-- start_forget takes a suspect from those that a worker's handlers have begun.
local function start_forget(key)
  local worker = redis.call('HGET', keys.started, key)
  if not worker then return end
  redis.call('HDEL', keys.started, key)
  local n, group = match(redis.call('HGET', keys.begun, worker) or '1|', '^(%d+)|(.*)$')
  if n == '1' then
    redis.call('HDEL', keys.begun, worker)
  else
    redis.call('HSET', keys.begun, worker, format('%d|%s', n - 1, group))
  end
end

-- gate_leave counts a job that is no longer in a ready stream.
local function gate_leave(name)
  local g = gate(name)
  g.held = math.max(0, g.held - 1)
  call.gates_dirty[name] = true
end

-- mark_release gives back the unit of a job that was dispatched under a breaker, if its period lasts.
local function mark_release(key, name)
  local mark = state_num('nm') > 0 and redis.call('HGET', keys.marks, key)
  if not mark then return end
  redis.call('HDEL', keys.marks, key)
  state_add('nm', -1)
  local g = gate(name)
  if g and g.rest == match(mark, '^%d+') then
    gate_leave(name)
    call.freed[name] = true
  end
end

-- entry_leave gives back what a job that leaves a ready stream held for its downstream.
local function entry_leave(pool_id, downstream)
  if downstream == '' then return end
  hold_add(pool_id, downstream, -1)
  local name = pool_id .. ':' .. downstream
  call.shelf_freed[name] = (call.shelf_freed[name] or 0) + 1
end

-- entry_release gives back the units of a job that leaves a ready stream. A plain one has none of a breaker.
local function entry_release(pool_id, key, rec, plain)
  if byte(rec, 6) > 0 then start_forget(key) end
  local r = record_read(rec)
  local downstream = sub(r.lane, 2)
  entry_leave(pool_id, downstream)
  if not plain and downstream ~= '' then mark_release(key, 'b:' .. downstream) end
  local tenant = key_split(key)
  local names = cap_names(r.queue, tenant, downstream)
  gates_load(names)
  for _, name in ipairs(names) do
    if gate(name) then
      gate_leave(name)
      call.freed[name] = true
    end
  end
end
