-- cancel ends a job wherever it is: at once where it waits, with its handler's context where it runs.
-- KEYS[1] state  hash; the partition's other keys share its hash tag and are named after it
-- ARGV[1] now  microseconds, "" for Redis TIME
-- ARGV[2] key  of the job
-- ARGV[3] by  who does it and why, as fragments/audit.lua reads it; its handler is told the reason
-- ARGV[4] name  under which the audit tells of it: the job's, or that of a queue whose jobs are all cancelled
-- Reply {"cancelled" | "more"}, {"cancelling"}: its worker hears of it, {"dead"}: it is a dead letter, {"ended"},
--   {"unknown"}, or {"unplaced"}: it has a record and stands nowhere, as after half a transaction
-- Never ends a running job itself: whether it completed first is for its worker to say.
-- @flag allow-oom
-- @relief
-- entry_of returns the pool and the entry of a job in a ready stream.
local function entry_of(key)
  for id in string.gmatch(state_get('pools') or '', '%S+') do
    local pool = pool_open(id)
    for _, e in ipairs(redis.call('XRANGE', pool.key, '-', '+')) do
      if e[2][2] == key then return pool, e[1] end
    end
  end
end

function scripts.cancel(KEYS, ARGV)
  local STATE, NOW, KEY, BY, NAME = KEYS[1], ARGV[1], ARGV[2], ARGV[3], ARGV[4]
  local now = now_us(NOW)

  call_begin(now, { 'pools' })
  local by = by_read(BY)
  local rec = redis.call('HGET', keys.jobs, KEY)
  if not rec then
    for age = 0, 1 do
      if redis.call('SISMEMBER', ended_key(state_num('gen') - age), KEY) == 1 then return { 'ended' } end
    end
    return { 'unknown' }
  end
  if redis.call('ZSCORE', keys.dead, KEY) then return { 'dead' } end
  local tenant, id = key_split(KEY)
  local r = record_read(rec)
  local q = queue_open(r.queue)
  local cl = class_open(q, r.class + 1)
  if redis.call('ZREM', keys.later, KEY) == 0 then
    if redis.call('ZREM', lane_key(cl, tenant, r.lane), r.order .. id) == 1 then
      waiting_add(cl, r.lane, -1)
      old_remove(KEY, rec)
      lane_shrunk(cl, tenant, r.lane)
    elseif not spill_remove(depth_name(KEY, rec), KEY, rec) then
      local pool, token = entry_of(KEY)
      if not pool then return { 'unplaced' } end
      local pending = redis.call('XPENDING', pool.key, GROUP, token, token, 1)[1]
      if pending then
        if redis.call('HSET', keys.cancelled, KEY, pending[2] .. '|' .. token .. '|' .. by.reason) == 1 then state_add('nc', 1) end
        audit_act(now, by, NAME, 1)
        state_write()
        return { 'cancelling' }
      end
      redis.call('XDEL', pool.key, token)
      entry_release(pool.id, KEY, rec)
      call.refill_pools[pool.id] = true
    end
  end
  audit_act(now, by, NAME, 1)
  leave(KEY, 'cancelled', rec)
  freed_wake(now)
  return { fill(now) and 'more' or 'cancelled' }
end
