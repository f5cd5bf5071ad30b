-- @include gate
-- @include queue
-- @include record
-- @include due
-- @include leave
-- lane: the waiting room of one class of one queue (CQ = CLASS:QUEUE).
--   lane:CQ:TENANT:LANE   ZSET of jobs by deadline, or by arrival + horizon; LANE = d or n, then the downstream
--   act:CQ                ZSET of runnable tenants by start tag; member = entry (8 bytes), tenant, so that ties
--                         go by the order of entering, not by names
--   idle:CQ               ZSET of kept tags above V of tenants that are not runnable
--   ten:CQ                HASH tenant → mode, entry (8 bytes), LANE or *; modes: a runnable, b all lanes behind
--                         gates, t behind a gate of the tenant
--   lanes:CQ:TENANT       ZSET of the lanes of a tenant with * by head score; one behind a gate at + BLOCKED
local BLOCKED = 4e15
local pass_on, refill = {}, {}

local function class_open(q, c)
  local cl = q.classes[c]
  if not cl then
    local cq = (c - 1) .. ':' .. q.name
    cl = { q = q, c = c, cq = cq, act = P .. 'act:' .. cq, idle = P .. 'idle:' .. cq, ten = P .. 'ten:' .. cq,
      tenants = {} }
    q.classes[c] = cl
  end
  return cl
end

local function lane_key(cl, tenant, lane)
  return P .. 'lane:' .. cl.cq .. ':' .. tenant .. ':' .. lane
end

local function lanes_key(cl, tenant)
  return P .. 'lanes:' .. cl.cq .. ':' .. tenant
end

local function tenant_parse(v)
  if not v then return false end
  return { mode = sub(v, 1, 1), entry = sub(v, 2, 9), lane = sub(v, 10) }
end

local function tenant_open(cl, tenant)
  local x = cl.tenants[tenant]
  if x == nil then
    x = tenant_parse(redis.call('HGET', cl.ten, tenant))
    cl.tenants[tenant] = x
  end
  return x
end

local function tenant_write(cl, tenant, x)
  cl.tenants[tenant] = x
  redis.call('HSET', cl.ten, tenant, x.mode .. x.entry .. x.lane)
end

-- tenant_enter makes the tenant runnable: S = max(V, kept tag).
local function tenant_enter(cl, tenant, x)
  local tag = cl.q.V[cl.c]
  local kept = redis.call('ZSCORE', cl.idle, tenant)
  if kept then
    tag = math.max(tag, tonumber(kept))
    redis.call('ZREM', cl.idle, tenant)
  end
  x.mode, x.entry = 'a', u64(state_add('seq', 1))
  tenant_write(cl, tenant, x)
  redis.call('ZADD', cl.act, format('%.17g', tag), x.entry .. tenant)
  cl.q.touched = true
  refill[cl.q.name] = true
end

-- tenant_exit takes a runnable tenant out of the runnable set and keeps its tag if above V.
local function tenant_exit(cl, tenant, x)
  local member = x.entry .. tenant
  local tag = tonumber(redis.call('ZSCORE', cl.act, member))
  redis.call('ZREM', cl.act, member)
  if redis.call('EXISTS', cl.act) == 0 then
    redis.call('UNLINK', cl.idle)
  elseif tag > cl.q.V[cl.c] then
    redis.call('ZADD', cl.idle, format('%.17g', tag), tenant)
  end
end

local function downstream_gate(lane)
  return 'd:' .. sub(lane, 2)
end

-- lane_vanished lets the unit that a lane might have used go to another waiter.
local function lane_vanished(lane)
  if #lane > 1 and gates_any() and gate(downstream_gate(lane)) then
    pass_on[downstream_gate(lane)] = true
  end
end

-- lane_blocked_all reports whether every lane of a tenant with * stands behind a gate.
local function lane_blocked_all(cl, tenant)
  local head = redis.call('ZRANGE', lanes_key(cl, tenant), 0, 0, 'WITHSCORES')
  return head[1] and tonumber(head[2]) >= BLOCKED
end

local function deadline_timer(cl, tenant, lane)
  return 'd' .. cl.cq .. ':' .. tenant .. ':' .. sub(lane, 2)
end

-- lane_place adds a job to its lane, and its tenant to the runnable set where nothing stands against it. It
-- returns the number of jobs in the lane.
local function lane_place(cl, tenant, lane, score, member)
  local key = lane_key(cl, tenant, lane)
  redis.call('ZADD', key, format('%.0f', score), member)
  local size = redis.call('ZCARD', key)
  cl.q.waiting[cl.c] = cl.q.waiting[cl.c] + 1
  cl.q.touched = true
  local first = size == 1 or redis.call('ZRANK', key, member) == 0
  if first and byte(lane) == 100 then due_add(DUE, score + 1, deadline_timer(cl, tenant, lane)) end
  local x = tenant_open(cl, tenant)
  if not x then
    tenant_enter(cl, tenant, { lane = lane })
  elseif x.lane == '*' then
    if not first then return size end
    local at = redis.call('ZSCORE', lanes_key(cl, tenant), lane)
    local blocked = at and tonumber(at) >= BLOCKED
    redis.call('ZADD', lanes_key(cl, tenant), format('%.0f', blocked and score + BLOCKED or score), lane)
    if x.mode == 'b' and not blocked then tenant_enter(cl, tenant, x) end
  elseif x.lane ~= lane then
    local head = redis.call('ZRANGE', lane_key(cl, tenant, x.lane), 0, 0, 'WITHSCORES')
    redis.call('ZADD', lanes_key(cl, tenant), head[2], x.lane, format('%.0f', score), lane)
    x.lane = '*'
    tenant_write(cl, tenant, x)
  end
  return size
end

local function tenant_drained(cl, tenant, x)
  if x.mode == 'a' then
    tenant_exit(cl, tenant, x)
  elseif x.mode == 't' then
    gate_forget('t:' .. tenant, cl.c - 1, cl.q.name, tenant)
    gate_forget('u:' .. tenant .. ':' .. cl.q.name, cl.c - 1, cl.q.name, tenant)
  end
  redis.call('HDEL', cl.ten, tenant)
  cl.tenants[tenant] = false
end

-- lane_shrunk settles a lane from which jobs were taken other than by dispatch.
local function lane_shrunk(cl, tenant, lane)
  local head = redis.call('ZRANGE', lane_key(cl, tenant, lane), 0, 0, 'WITHSCORES')
  local x = tenant_open(cl, tenant)
  cl.q.touched = true
  if not head[1] and byte(lane) == 100 then redis.call('ZREM', DUE, deadline_timer(cl, tenant, lane)) end
  if x.lane ~= '*' then
    if not head[1] then
      if x.mode == 'a' then lane_vanished(lane) end
      tenant_drained(cl, tenant, x)
    end
    return
  end
  local lanes = lanes_key(cl, tenant)
  local blocked = tonumber(redis.call('ZSCORE', lanes, lane)) >= BLOCKED
  if head[1] then
    redis.call('ZADD', lanes, format('%.0f', blocked and head[2] + BLOCKED or head[2]), lane)
    return
  end
  redis.call('ZREM', lanes, lane)
  if blocked then
    gate_forget(downstream_gate(lane), cl.c - 1, cl.q.name, tenant .. ':' .. lane)
  elseif x.mode == 'a' then
    lane_vanished(lane)
  end
  if redis.call('EXISTS', lanes) == 0 then
    tenant_drained(cl, tenant, x)
  elseif x.mode == 'a' and lane_blocked_all(cl, tenant) then
    tenant_exit(cl, tenant, x)
    x.mode = 'b'
    tenant_write(cl, tenant, x)
  end
end

-- job_expire ends a job whose deadline has passed, by its queue's policy.
local function job_expire(q, key, now)
  if q.expired == 'drop' then
    leave(key, 'expired', true)
  else
    dead_letter(key, 'expired', '', now)
  end
end

-- job_return puts a job back where it stood, same seq and same score. A job past its deadline expires.
local function job_return(key, rec, now)
  local tenant, id = key_split(key)
  local r = record_read(rec)
  local q = queue_open(r.queue)
  if byte(r.lane) == 100 and r.score < now then
    job_expire(q, key, now)
  else
    lane_place(class_open(q, r.class + 1), tenant, r.lane, r.score, r.order .. id)
  end
end
