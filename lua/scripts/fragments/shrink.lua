-- @include everykind
-- @include lane
-- shrink: jobs leave a lane other than by dispatch.
local function gate_forget(name, class, queue, member)
  local line = class .. ':' .. queue
  if redis.call('ZREM', call.prefix .. 'gw:' .. name .. '|' .. line, member) == 1 then gate_tidy(name, line) end
end

-- tenant_exit takes a runnable tenant out of the runnable set and keeps its tag if above V.
local function tenant_exit(cl, tenant, x)
  local member = x.entry .. tenant
  local tag = score_of(redis.call('ZSCORE', cl.act, member))
  redis.call('ZREM', cl.act, member)
  runs_add(cl, x.lane, -1)
  if redis.call('EXISTS', cl.act) == 0 then
    redis.call('UNLINK', cl.idle)
  elseif tag > cl.q.V[cl.c] then
    redis.call('ZADD', cl.idle, format('%.17g', tag), tenant)
  end
end

local function tenant_drained(cl, tenant, x)
  if x.mode == 'a' then
    tenant_exit(cl, tenant, x)
  elseif x.mode == 't' then
    for _, name in ipairs(tenant_gates(tenant, cl.q.name, EVERY_KIND)) do gate_forget(name, cl.c - 1, cl.q.name, tenant) end
  end
  redis.call('HDEL', cl.ten, tenant)
  cl.tenants[tenant] = false
end

-- lanes_parked notes that a tenant has no open lane left.
local function lanes_parked(cl, tenant, x)
  if x.mode == 'a' then
    tenant_exit(cl, tenant, x)
    x.mode = 'b'
  end
  x.beside, x.lane = '', '*'
  tenant_write(cl, tenant, x)
end

-- lane_shrunk settles a lane from which jobs were taken other than by dispatch.
local function lane_shrunk(cl, tenant, lane)
  local head = redis.call('ZRANGE', lane_key(cl, tenant, lane), 0, 0, 'WITHSCORES')
  local x = tenant_open(cl, tenant)
  cl.q.touched = true
  if not head[1] and byte(lane) == 100 then redis.call('ZREM', keys.due, deadline_timer(cl, tenant, lane)) end
  if x.lane == lane then
    if head[1] then return end
    if x.mode == 'a' then lane_vanished(lane) end
    if x.beside == '' then
      tenant_drained(cl, tenant, x)
    else
      lanes_parked(cl, tenant, x)
    end
    return
  end
  local lanes = lanes_key(cl, tenant)
  local blocked = score_of(redis.call('ZSCORE', lanes, lane)) >= BLOCKED
  if head[1] then
    redis.call('ZADD', lanes, format('%d', blocked and score_of(head[2]) + BLOCKED or head[2]), lane)
    return
  end
  redis.call('ZREM', lanes, lane)
  lane_counted(cl, tenant)
  if blocked then
    gate_forget('h:' .. sub(lane, 2), cl.c - 1, cl.q.name, tenant .. ':' .. lane)
    for _, name in ipairs(lane_gates(sub(lane, 2), EVERY_KIND)) do gate_forget(name, cl.c - 1, cl.q.name, tenant .. ':' .. lane) end
  elseif x.mode == 'a' then
    lane_vanished(lane)
  end
  if x.lane == '*' then
    if not tenant_settle(cl, tenant, x) then tenant_drained(cl, tenant, x) end
  elseif redis.call('EXISTS', lanes) == 0 then
    x.beside = ''
    tenant_write(cl, tenant, x)
  end
end
