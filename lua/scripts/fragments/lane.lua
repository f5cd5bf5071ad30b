-- lane: the waiting room of one class of one queue (CQ = CLASS:QUEUE).
--   lane:CQ:TENANT:LANE   ZSET of jobs by deadline, or by arrival + horizon; LANE = d or n, then the downstream
--   act:CQ                ZSET of runnable tenants by start tag; member = entry (8 bytes), tenant, so that ties
--                         go by the order of entering, not by names
--   idle:CQ               ZSET of kept tags above V of tenants that are not runnable
--   ten:CQ                HASH tenant → mode, entry (8 bytes), its only open lane, with a "+" before it if others stand
--                         behind gates, or * for none or several (behind a gate of the tenant, any number); modes:
--                         a runnable, b all lanes behind gates, t behind a gate of the tenant
--   lanes:CQ:TENANT       ZSET of the lanes that ten does not name, by head score; one behind a gate at + BLOCKED
--   waits                 HASH service → how many jobs wait for it in lanes
--   runs                  HASH CQ:SERVICE → how many runnable tenants have one open lane, which is of that service
--   wide                  ZSET CQ:TENANT by how many lanes it has, from WIDE_FROM on; `wl` counts them
local BLOCKED = 4e15
local LANE_CAP = 4096
local WIDE_FROM = LANE_CAP * 0.75

local function class_open(q, c)
  local cl = q.classes[c]
  if not cl then
    local cq = (c - 1) .. ':' .. q.name
    cl = { q = q, c = c, cq = cq, act = call.prefix .. 'act:' .. cq, idle = call.prefix .. 'idle:' .. cq, ten = call.prefix .. 'ten:' .. cq,
      tenants = {} }
    q.classes[c] = cl
  end
  return cl
end

-- class_runs returns how many tenants of a class are runnable. Where the plan has all of them, nobody is asked.
local function class_runs(cl)
  local p = cl.plan
  if p and p.all then return #p.cand - p.i + #p.line - p.h + 2 end
  return redis.call('ZCARD', cl.act) - (p and #p.gone or 0)
end

-- class_busy reports whether a class has runnable tenants.
local function class_busy(cl)
  local p = cl.plan
  return p and (p.line[p.h] or p.cand[p.i]) and true or class_runs(cl) > 0
end

-- reserve_shut reports whether a class may take no slot: those kept for others are lent only while none of these is runnable.
local function reserve_shut(q, c)
  local g = reserve_taken(q.name, c)
  if not g or not g.lends then return g ~= nil end
  for i in pairs(g.classes) do
    if i <= q.n and q.waiting[i] > 0 and class_busy(class_open(q, i)) then return true end
  end
  return false
end

-- waiting_add counts jobs that enter a lane, or leave it.
local function waiting_add(cl, lane, n)
  cl.q.waiting[cl.c] = cl.q.waiting[cl.c] + n
  if #lane > 1 then
    local service = service_of(sub(lane, 2))
    call.waits[service] = (call.waits[service] or 0) + n
  end
end

-- runs_add counts runnable tenants of one open lane.
local function runs_add(cl, lane, n)
  if lane == '*' or #lane == 1 then return end
  local name = cl.cq .. ':' .. service_of(sub(lane, 2))
  call.runs[name] = (call.runs[name] or 0) + n
end

-- lane_counted has the lanes of a tenant counted, when one has been added to several or, where any tenant has many, taken away.
local function lane_counted(cl, tenant, added)
  if added or state_num('wl') > 0 then call.widened[cl.cq .. ':' .. tenant] = call.prefix .. 'lanes:' .. cl.cq .. ':' .. tenant end
end

local function widths_write()
  if not next(call.widened) then return end
  for name, lanes in pairs(call.widened) do
    local n = redis.call('ZCARD', lanes)
    if n >= WIDE_FROM then
      redis.call('ZADD', keys.wide, n, name)
    elseif state_num('wl') > 0 then
      redis.call('ZREM', keys.wide, name)
    end
    if n >= WIDE_FROM or state_num('wl') > 0 then state_set('wl', redis.call('ZCARD', keys.wide)) end
  end
  call.widened = {}
end

local function waits_write()
  widths_write()
  for service, n in pairs(call.waits) do
    if n ~= 0 and redis.call('HINCRBY', keys.waits, service, n) == 0 then redis.call('HDEL', keys.waits, service) end
  end
  for name, n in pairs(call.runs) do
    if n ~= 0 and redis.call('HINCRBY', keys.runs, name, n) == 0 then redis.call('HDEL', keys.runs, name) end
  end
  call.waits, call.runs = {}, {}
end

local function lane_key(cl, tenant, lane)
  return call.prefix .. 'lane:' .. cl.cq .. ':' .. tenant .. ':' .. lane
end

local function lanes_key(cl, tenant)
  return call.prefix .. 'lanes:' .. cl.cq .. ':' .. tenant
end

-- WAITERS are the tables of what calls know of tenants, which outlast them to be written over, as those of paths do; call.parsed counts those in use. A
-- fill of a pool with many queues may know of more than are kept. The bytes of an entry stay where they stood until one needs them.
local WAITERS, WAITERS_KEPT = {}, 1000

-- tenant_new returns a table of a tenant with nothing in it of the one that had it before, but what plan_more sets of each that a plan takes.
local function tenant_new(mode, entry, stored, beside, lane)
  local n = call.parsed + 1
  local x = WAITERS[n]
  call.parsed = n
  if not x then
    x = { mode = mode, entry = entry, stored = stored, beside = beside, lane = lane, name = nil, member = nil, gates = nil, tag = nil, number = nil, weight = nil,
      arrived = false, latest = false, due = 0, size = 0 }
    if n <= WAITERS_KEPT then WAITERS[n] = x end
    return x
  end
  x.mode, x.entry, x.stored, x.beside, x.lane, x.size = mode, entry, stored, beside, lane, 0
  return x
end

local function tenant_parse(v)
  if not v then return false end
  local beside = byte(v, 10) == 43 and '+' or ''
  return tenant_new(sub(v, 1, 1), false, v, beside, sub(v, 10 + #beside))
end

-- tenant_entry returns the entry of a tenant.
local function tenant_entry(x) return x.entry or sub(x.stored, 2, 9) end

local function tenant_text(x)
  return x.mode .. tenant_entry(x) .. x.beside .. x.lane
end

local function tenant_open(cl, tenant)
  local x = cl.tenants[tenant]
  if x == nil then
    x = tenant_parse(redis.call('HGET', cl.ten, tenant))
    cl.tenants[tenant] = x
  end
  return x
end

-- tenants_load reads several tenants in one call.
local function tenants_load(cl, names)
  local values = redis.call('HMGET', cl.ten, unpack(names))
  for i = 1, #names do cl.tenants[names[i]] = tenant_parse(values[i]) end
end

local function tenant_write(cl, tenant, x)
  cl.tenants[tenant] = x
  redis.call('HSET', cl.ten, tenant, tenant_text(x))
end

-- tenant_enter makes the tenant runnable: S = max(V, kept tag).
local function tenant_enter(cl, tenant, x)
  local tag = cl.q.V[cl.c]
  local kept = redis.call('ZSCORE', cl.idle, tenant)
  if kept then
    tag = math.max(tag, score_of(kept))
    redis.call('ZREM', cl.idle, tenant)
  end
  x.mode, x.entry = 'a', u64(state_add('seq', 1))
  runs_add(cl, x.lane, 1)
  tenant_write(cl, tenant, x)
  redis.call('ZADD', cl.act, format('%.17g', tag), x.entry .. tenant)
  cl.q.touched = true
  call.refill[cl.q.name] = true
end

-- tenant_several gives a tenant of one open lane another.
local function tenant_several(cl, tenant, x, lane, score)
  local head = redis.call('ZRANGE', lane_key(cl, tenant, x.lane), 0, 0, 'WITHSCORES')
  redis.call('ZADD', lanes_key(cl, tenant), head[2], x.lane, score, lane)
  if x.mode == 'a' then runs_add(cl, x.lane, -1) end
  x.lane, x.beside = '*', ''
  tenant_write(cl, tenant, x)
end

-- lane_vanished lets the units that a lane might have used go to other waiters.
local function lane_vanished(lane)
  if not gates_any() then return end
  for _, name in ipairs(lane_gates(sub(lane, 2))) do
    if gate(name) then call.pass_on[name] = true end
  end
end

-- tenant_settle looks at the lanes of a tenant with *, names the only open one, and returns 'a' if any is open, 'b' if
-- none is, and false if there is no lane.
local function tenant_settle(cl, tenant, x)
  local lanes = lanes_key(cl, tenant)
  local first = redis.call('ZRANGE', lanes, 0, 1, 'WITHSCORES')
  if not first[1] then return false end
  if score_of(first[2]) >= BLOCKED then return 'b' end
  if not first[3] or score_of(first[4]) >= BLOCKED then
    redis.call('ZREM', lanes, first[1])
    lane_counted(cl, tenant)
    x.beside, x.lane = first[3] and '+' or '', first[1]
    if x.mode == 'a' then runs_add(cl, x.lane, 1) end
    tenant_write(cl, tenant, x)
  end
  return 'a'
end

local function deadline_timer(cl, tenant, lane)
  return 'd' .. cl.cq .. ':' .. tenant .. ':' .. sub(lane, 2)
end

-- job_expire ends a job whose deadline has passed, by its queue's policy.
local function job_expire(q, key, rec, now)
  local reason = record_has(rec, TIMED) and 'queue_timeout' or 'expired'
  if q.expired == 'drop' then
    leave(key, reason, rec)
  else
    dead_letter(key, rec, reason, '', now)
  end
end

-- lane_place adds a job to its lane, and its tenant to the runnable set where nothing stands against it. It
-- returns the job's position in the lane. What its tenant has is asked for the head alone: what comes behind another changes nothing of it.
local function lane_place(cl, tenant, lane, score, member)
  local key = lane_key(cl, tenant, lane)
  if score ~= cl.placed_at then cl.placed_at, cl.placed_text = score, format('%d', score) end
  redis.call('ZADD', key, cl.placed_text, member)
  local rank = redis.call('ZRANK', key, member)
  waiting_add(cl, lane, 1)
  cl.q.touched = true
  if rank > 0 then return rank + 1 end
  local x = tenant_open(cl, tenant)
  if byte(lane) == 100 then due_add(keys.due, score + 1, deadline_timer(cl, tenant, lane)) end
  if not x then
    tenant_enter(cl, tenant, tenant_new(nil, nil, nil, '', lane))
  elseif x.lane ~= lane then
    local lanes = lanes_key(cl, tenant)
    if redis.call('ZCARD', key) > 1 then
      local blocked = score_of(redis.call('ZSCORE', lanes, lane)) >= BLOCKED
      redis.call('ZADD', lanes, format('%d', blocked and score + BLOCKED or score), lane)
    elseif x.lane ~= '*' then
      tenant_several(cl, tenant, x, lane, format('%d', score))
    elseif x.mode == 'b' then
      x.beside, x.lane = '+', lane
      tenant_enter(cl, tenant, x)
    else
      redis.call('ZADD', lanes, format('%d', score), lane)
      lane_counted(cl, tenant, true)
    end
  end
  return 1
end

-- shrink: jobs leave a lane other than by dispatch.
local function gate_forget(name, class, queue, member)
  local line = class .. ':' .. queue
  if redis.call('ZREM', call.prefix .. 'gw:' .. name .. '|' .. line, member) == 1 then gate_tidy(name, line) end
end

-- tenant_exit takes a runnable tenant out of the runnable set and keeps its tag if above V.
local function tenant_exit(cl, tenant, x)
  local member = tenant_entry(x) .. tenant
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
    gate_forget('h:' .. service_of(sub(lane, 2)), cl.c - 1, cl.q.name, tenant .. ':' .. lane)
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

-- widths: a tenant has at most LANE_CAP lanes in a class of a queue, and those that one call makes. `wide` (lane.lua) has those that
-- have many. Jobs that are put off make their lanes when their time comes: `ahead:TENANT` is a ZSET of the downstreams of those by the
-- time of the last, of which there are as many at most.

-- lane_of returns the lane of a job that comes in: with its deadline, if it has one, and its downstream.
local function lane_of(job) return (job.flags % 2 == 1 and 'd' or 'n') .. job.downstream end

-- lanes_full returns the refusal of a job for which a tenant that has as many lanes as it may would have one more.
local function lanes_full(job, now)
  local path, lane = job.path, lane_of(job)
  if #lane == 1 then return nil end
  if queue_open(path.queue).wait > 0 then lane = 'd' .. job.downstream end
  local cq = (path.class - 1) .. ':' .. path.queue
  local n = state_num('wl') > 0 and tonumber(redis.call('ZSCORE', keys.wide, cq .. ':' .. path.tenant) or 0) or 0
  if n >= LANE_CAP and redis.call('EXISTS', call.prefix .. 'lane:' .. cq .. ':' .. path.tenant .. ':' .. lane) == 0 then return format('lanes %d', n) end
  if not job.start then return nil end
  local zset, downstream = call.prefix .. 'ahead:' .. path.tenant, job.downstream
  local new = call.ahead_new[path.tenant] or {}
  if new[downstream] or redis.call('ZSCORE', zset, downstream) then return nil end
  n = ends_count(zset, now) + (new.n or 0)
  if n >= LANE_CAP then return format('lanes %d', n) end
  new.n, new[downstream] = (new.n or 0) + 1, true
  call.ahead_new[path.tenant] = new
end

-- ahead_add notes a job that is put off.
local function ahead_add(job, now)
  if job.downstream ~= '' then ends_add(call.prefix .. 'ahead:' .. job.path.tenant, job.downstream, job.start, now) end
end

function reset.lane()
  call.pass_on, call.refill, call.waits, call.runs, call.widened = {}, {}, {}, {}, {}
  call.ahead_new, call.parsed = {}, 0
end

-- nobody_runs reports whether nobody in the queue is runnable: no job waits, or those that do stand behind gates.
local function nobody_runs(q)
  local waited_for = {}
  for c = 1, q.n do
    if q.waiting[c] > 0 then waited_for[#waited_for + 1] = call.prefix .. 'act:' .. (c - 1) .. ':' .. q.name end
  end
  return not waited_for[1] or gates_any() and redis.call('EXISTS', unpack(waited_for)) == 0
end
