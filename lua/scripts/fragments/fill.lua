-- fill: the end of every script that makes room or makes a job runnable (law W). It serves the pools in
-- `refill_pools` and every pool of the queues in `refill`, up to MOVES moves in all. Order: the pool's
-- queues, the queue's class pattern, the tenant with the lowest start tag, its lane with the lowest head.
-- It plans in Lua and writes once: a class's plan holds its lowest tenants as read (`cand`, from `i`), those
-- that were served by their new tags (`line`, from `h`), and what to write. A tenant of which nothing is written yet (arrivals) has no
-- member there.

-- tenants_gates returns the gates that there are before each of several tenants, nil where there are none before any. It
-- reads them in one call.
local function tenants_gates(of, queue)
  local k, names, n = gate_kinds(), {}, 0
  if not (k.t or k.u or k.r) then return nil end
  if k.t then names[1], n = 't:*', 1 end
  if k.u then names[n + 1], n = 'u:*:' .. queue, n + 1 end
  for _, tenant in ipairs(of) do
    if k.t then names[n + 1], n = 't:' .. tenant, n + 1 end
    if k.u then names[n + 1], n = 'u:' .. tenant .. ':' .. queue, n + 1 end
    if k.r then names[n + 1], n = 'r:' .. tenant, n + 1 end
  end
  local values, any = redis.call('HMGET', keys.gates, unpack(names)), k.c
  if k.c then records_read(of) end
  for i = 1, n do
    if values[i] or call.gates[names[i]] then any = true end
  end
  if not any then return nil end
  for i = 1, n do
    if call.gates[names[i]] == nil then call.gates[names[i]] = gate_parse(names[i], values[i]) end
  end
  local there = {}
  for i, tenant in ipairs(of) do there[i] = gates_there(tenant_gates(tenant, queue)) end
  return there
end

-- plan_share returns how many of what is wanted a class will serve while others of its queue have jobs: its part of the pattern, and a
-- turn.
local function plan_share(cl)
  local q, w, others = cl.q, cl.q.w[cl.c], 0
  for c = 1, q.n do
    if c ~= cl.c and q.waiting[c] > 0 then others = others + q.w[c] end
  end
  local want = math.min(call.want, call.moves)
  if others == 0 then return want end
  return math.min(want, math.ceil(want * w / (w + others)) + w)
end

local function plan_more(cl, p)
  local k = math.max(plan_share(cl), p.loaded > 0 and 16 or 1)
  local r = redis.call('ZRANGE', cl.act, p.loaded, p.loaded + k - 1, 'WITHSCORES')
  local n = #r / 2
  p.loaded = p.loaded + n
  if n < k then p.all = true end
  if n == 0 then return end
  local names, weights = {}, nil
  for i = 1, n do names[i] = sub(r[2 * i - 1], 9) end
  local there = gates_any() and tenants_gates(names, cl.q.name)
  local values = redis.call('HMGET', cl.ten, unpack(names))
  if state_num('nw') > 0 then weights = weights_of(cl.q.names[cl.c], names) end
  for i = 1, n do
    local x = cl.tenants[names[i]] or tenant_parse(values[i])
    cl.tenants[names[i]] = x
    x.name, x.member, x.gates = names[i], r[2 * i - 1], there and there[i] or NO_GATES
    x.tag, x.number = score_of(r[2 * i]), number_at(r[2 * i - 1], 1)
    x.weight = weights and weights[i] or 1
    p.cand[#p.cand + 1] = x
  end
end

local function plan_new(arrivals)
  return { cand = {}, i = 1, loaded = 0, all = arrivals, arrivals = arrivals, unread = arrivals, line = {}, h = 1, served = {}, gone = {} }
end

-- arrivals: the jobs that a call lets into a class in which nobody is runnable. They are in its plan alone: x.arrived is the first of a tenant's, by the order of
-- its lane, each has the one `after` it, x.latest is the last, x.size how many came, x.due the first deadline of all. Those that go to workers in the same call are
-- never written to a lane, nor is that their tenant was runnable.

-- arrivals_land writes some tenants that have arrived, with their jobs, as they stand.
local function arrivals_land(cl, of)
  local rows, tags = {}, {}
  for i, x in ipairs(of) do
    local lane, n, job = {}, 0, x.arrived
    if byte(x.lane) == 100 then due_add(keys.due, x.due + 1, deadline_timer(cl, x.name, x.lane)) end
    while job do
      lane[n + 1], lane[n + 2] = format('%d', job.score), job.member
      n, job = n + 2, job.after
    end
    redis.call('ZADD', lane_key(cl, x.name, x.lane), unpack(lane))
    x.entry, x.size = u64(x.number), 0
    x.member = x.entry .. x.name
    rows[2 * i - 1], rows[2 * i] = x.name, tenant_text(x)
    tags[2 * i - 1], tags[2 * i] = number_text(x.tag), x.member
    cl.plan.served[x] = nil
  end
  redis.call('HSET', cl.ten, unpack(rows))
  redis.call('ZADD', cl.act, unpack(tags))
end

-- arrivals_stay writes those that are not dispatched.
local function arrivals_stay(cl)
  local p, staying = cl.plan, {}
  for i = p.i, #p.cand do
    if not p.cand[i].member then staying[#staying + 1] = p.cand[i] end
  end
  for h = p.h, #p.line do
    if not p.line[h].member then staying[#staying + 1] = p.line[h] end
  end
  if staying[1] then arrivals_land(cl, staying) end
end

-- arrivals_read reads what else it goes by which of a class's new tenants is served.
local function arrivals_read(cl, p)
  local names, gated, weighed = {}, gates_any(), state_num('nw') > 0
  p.unread = false
  if not p.cand[1] or not gated and not weighed then return end
  for i, x in ipairs(p.cand) do names[i] = x.name end
  local there = gated and tenants_gates(names, cl.q.name)
  local weights = weighed and weights_of(cl.q.names[cl.c], names)
  for i, x in ipairs(p.cand) do
    x.gates, x.weight = there and there[i] or NO_GATES, weights and weights[i] or 1
  end
end

-- tenant_arrives enters a tenant in a class: nobody has a tag above V where nobody is runnable.
local function tenant_arrives(cl, tenant, x)
  x.name, x.member, x.gates, x.tag, x.number, x.weight = tenant, nil, NO_GATES, cl.q.V[cl.c], state_add('seq', 1), 1
  x.arrived, x.latest = false, false
  runs_add(cl, x.lane, 1)
  cl.tenants[tenant] = x
  cl.plan.cand[#cl.plan.cand + 1] = x
  cl.q.touched, call.refill[cl.q.name] = true, true
end

-- arrival_of returns the tenant of a job that may arrive in a class: one with nothing else there, or nothing but other lanes behind gates; nil for any other.
local function arrival_of(cl, tenant, lane)
  local x = cl.tenants[tenant]
  if not x then
    x = tenant_new('a', false, false, '', lane)
    tenant_arrives(cl, tenant, x)
  elseif x.size > 0 then
    if x.lane == lane then return x end
    arrivals_land(cl, { x })
    return nil
  elseif x.mode ~= 'b' or call.beside and redis.call('EXISTS', lane_key(cl, tenant, lane)) == 1 then
    return nil
  else
    x.mode, x.beside, x.lane = 'a', '+', lane
    tenant_arrives(cl, tenant, x)
  end
  return x
end

-- goes_before reports whether a job stands before another one in a lane: by score, and of those alike by seq, with which members begin.
local function goes_before(job, other)
  return job.score < other.score or job.score == other.score and number_at(job.member, 1) < number_at(other.member, 1)
end

-- lane_arrive adds a job to the arrivals of its class and returns its position in its lane, nil where lane_place has to: also where the call wakes others,
-- who find of their tenants what is written alone.
local function lane_arrive(cl, tenant, job)
  if not cl.plan then
    if cl.q.waiting[cl.c] > 0 and not cl.q.quiet or next(call.pass_on) then return nil end
    cl.plan = plan_new(true)
  end
  local x = arrival_of(cl, tenant, job.lane)
  if not x then return nil end
  local before, at, position = x.latest, false, x.size + 1
  x.size = position
  if before and goes_before(job, before) then
    before, at, position = false, x.arrived, 1
    while goes_before(at, job) do before, at, position = at, at.after, position + 1 end
  end
  if not before then x.arrived, x.due = job, job.score else before.after = job end
  if not at then x.latest = job end
  job.after = at
  waiting_add(cl, job.lane, 1)
  return position
end

-- lane_join adds a job to its lane, or to the arrivals, and returns its position.
local function lane_join(cl, tenant, job)
  return lane_arrive(cl, tenant, job) or lane_place(cl, tenant, job.lane, job.score, job.member)
end

-- plan_head returns the tenant with the lowest tag, ties by the order of entering.
local function plan_head(cl)
  local p = cl.plan
  if not p then
    p = plan_new(false)
    cl.plan = p
  end
  if p.unread then arrivals_read(cl, p) end
  if p.i > #p.cand and not p.all then plan_more(cl, p) end
  local a, b = p.cand[p.i], p.line[p.h]
  if a and b then
    if b.tag < a.tag or b.tag == a.tag and b.number < a.number then return b end
    return a
  end
  return a or b
end

local function plan_take(p, x)
  if p.cand[p.i] == x then p.i = p.i + 1 else p.h = p.h + 1 end
end

local function plan_put(p, x)
  p.served[x] = true
  local line, at = p.line, #p.line + 1
  while at > p.h and (line[at - 1].tag > x.tag or line[at - 1].tag == x.tag and line[at - 1].number > x.number) do
    line[at] = line[at - 1]
    at = at - 1
  end
  line[at] = x
end

-- plan_leave takes a tenant out for the reason in its mode: false when it has no job left.
local function plan_leave(cl, x, mode)
  local p = cl.plan
  plan_take(p, x)
  runs_add(cl, x.lane, -1)
  if mode == 'b' then x.beside, x.lane = '', '*' end
  p.served[x] = nil
  x.mode = mode
  p.gone[#p.gone + 1] = x
end

local function plan_write(cl)
  local p = cl.plan
  if not p then return end
  if p.arrivals then arrivals_stay(cl) end
  local V, left = cl.q.V[cl.c], class_busy(cl)
  local tags, out, kept, drained, modes = {}, {}, {}, {}, {}
  for x in pairs(p.served) do
    tags[#tags + 1] = number_text(x.tag)
    tags[#tags + 1] = x.member
  end
  for _, x in ipairs(p.gone) do
    out[#out + 1] = x.member -- nil of one that came and went
    if x.tag > V then
      kept[#kept + 1] = number_text(x.tag)
      kept[#kept + 1] = x.name
    end
    if not x.mode then
      if x.member then drained[#drained + 1] = x.name end
      cl.tenants[x.name] = false
    elseif x.member then
      modes[#modes + 1] = x.name
      modes[#modes + 1] = tenant_text(x)
    else
      x.size = 0 -- as it is stored
    end
  end
  if #tags > 0 then redis.call('ZADD', cl.act, unpack(tags)) end
  if #out > 0 then redis.call('ZREM', cl.act, unpack(out)) end
  if #modes > 0 then redis.call('HSET', cl.ten, unpack(modes)) end
  if #drained > 0 then redis.call('HDEL', cl.ten, unpack(drained)) end
  if not left then
    if p.loaded > 0 then redis.call('UNLINK', cl.idle) end -- No tag is kept where nobody was runnable.
  else
    if #kept > 0 then redis.call('ZADD', cl.idle, unpack(kept)) end
    if #tags + #p.gone > 0 then -- Twice as many go as tenants were served, or more: each tag that is kept is of one that was.
      local passed = redis.call('ZRANGEBYSCORE', cl.idle, '-inf', format('%.17g', V), 'LIMIT', 0, math.max(16, #tags + 2 * #p.gone))
      if #passed > 0 then redis.call('ZREM', cl.idle, unpack(passed)) end
    end
  end
  cl.plan = nil
end

-- plans_write writes the plans of all classes: also before a fill, where a call does something between that and what arrives.
local function plans_write()
  for _, q in pairs(call.queues) do
    for _, cl in pairs(q.classes) do plan_write(cl) end
  end
end

-- queue_can_run returns the tenant that a class would serve, if any.
local function queue_can_run(q, c)
  return q.waiting[c] > 0 and not reserve_shut(q, c) and plan_head(class_open(q, c))
end

-- pool_can_run returns the class that a queue would serve, if any, and its tenant.
local function pool_can_run(p, i)
  local q = queue_open(p.queues[i])
  if gates_any() and gate_kinds().q and gate_closed('q:' .. q.name) then return false end
  return pattern_next(q, queue_can_run)
end

-- pool_next returns the queue that a pool would serve, by its number, with its class and tenant.
local function pool_next(p)
  if p.mode == 'w' then return pattern_next(p, pool_can_run) end
  for i = 1, p.n do
    local c, x = pool_can_run(p, i)
    if c then return i, c, x end
  end
end

-- park_tenant parks x if a gate of its tenant is closed. Its open lanes leave their units to others.
local function park_tenant(cl, x, now)
  if not waiter_park(cl, x.gates, x.tag, x.name, now) then return false end
  if not x.member then arrivals_land(cl, { x }) end
  plan_leave(cl, x, 't')
  if x.lane ~= '*' then
    lane_vanished(x.lane)
  else
    local open = redis.call('ZRANGEBYSCORE', lanes_key(cl, x.name), '-inf', '(' .. format('%d', BLOCKED))
    for _, lane in ipairs(open) do lane_vanished(lane) end
  end
  return true
end

-- park_lane parks a lane if one of the gates of its downstream is closed, or if it goes on the shelf. It leaves the units of
-- other gates to others.
local function park_lane(pool, cl, x, lane, stops, now)
  local service = service_of(sub(lane, 2))
  if not (stops[1] and waiter_park(cl, stops, x.tag, x.name .. ':' .. lane, now)) then
    if not must_shelve(pool, service) then return false end
    gate_park('h:' .. service, cl.c - 1, cl.q.name, x.tag, x.name .. ':' .. lane)
  end
  if not x.member then arrivals_land(cl, { x }) end
  local lanes = lanes_key(cl, x.name)
  local head = redis.call('ZRANGE', lane_key(cl, x.name, lane), 0, 0, 'WITHSCORES')
  redis.call('ZADD', lanes, format('%d', score_of(head[2]) + BLOCKED), lane)
  lane_vanished(lane)
  if pool.others ~= service then pool.others = nil end -- Without this lane there may be none that runs beside another downstream's.
  if x.lane ~= '*' then
    plan_leave(cl, x, 'b')
  else
    pool.others = nil
    tenant_settle(cl, x.name, x)
  end
  return true
end

-- lane_popped settles x after a job was taken from its lane, which has that key, by fill: still there, behind gates, or drained.
local function lane_popped(cl, x, lane, key)
  local mode = 'a'
  if x.lane == '*' then
    local lanes, head = lanes_key(cl, x.name), redis.call('ZRANGE', key, 0, 0, 'WITHSCORES')
    if head[1] then
      redis.call('ZADD', lanes, head[2], lane)
      return 'a'
    end
    redis.call('ZREM', lanes, lane)
    lane_counted(cl, x.name)
    tenant_settle(cl, x.name, x)
  elseif redis.call('EXISTS', key) == 1 then
    return 'a'
  else
    mode = x.beside ~= '' and 'b'
  end
  if byte(lane) == 100 then redis.call('ZREM', keys.due, deadline_timer(cl, x.name, lane)) end
  return mode
end

-- lane_pop takes the first job of a lane, and returns its member, its score, and what lane_popped says.
local function lane_pop(cl, x, lane)
  if not x.member then
    local job = x.arrived
    x.arrived = job.after
    return job.member, job.score, x.arrived and 'a' or x.beside ~= '' and 'b'
  end
  local key = lane_key(cl, x.name, lane)
  local popped = redis.call('ZPOPMIN', key)
  return popped[1], popped[2], lane_popped(cl, x, lane, key)
end

-- gates_pass counts a pick under those of some gates that there are.
local function gates_pass(pick, names)
  for _, name in ipairs(names) do
    if gate(name) then
      pick.period = gate_pass(name) or pick.period
      if gate_is_rate(name) then
        call.pass_on[name] = true
      else
        pick.counted = true
      end
    end
  end
end

-- PICKS are the picks of calls, in tables that outlast them to be written over: the pool, the job's key, its downstream, and its class.
local PICKS = {}
local function pick_new(pool, key, downstream, cl)
  local n = #call.picks + 1
  local pick = PICKS[n]
  if not pick then
    pick = { pool = pool, key = key, downstream = downstream, cl = cl, period = nil, counted = nil }
    PICKS[n] = pick
  end
  pick.pool, pick.key, pick.downstream, pick.cl, pick.period, pick.counted = pool, key, downstream, cl, nil, nil
  call.picks[n] = pick
  return pick
end

-- serve makes one move with the tenant at the head of a class and reports whether it was a dispatch.
local function serve(pool, cl, x, now)
  local q, gated = cl.q, gates_any()
  call.moves = call.moves - 1
  q.touched = true
  if x.gates[1] and park_tenant(cl, x, now) then
    pool.others = nil
    return false
  end
  local lane = x.lane
  if lane == '*' then lane = redis.call('ZRANGE', lanes_key(cl, x.name), 0, 0)[1] end
  local downstream = #lane > 1 and sub(lane, 2) or ''
  local stops = gated and lane_gates(downstream) or NO_GATES
  if downstream ~= '' and park_lane(pool, cl, x, lane, stops, now) then return false end
  pool.others = nil
  local member, score, mode = lane_pop(cl, x, lane)
  if not member then -- Somebody has emptied it.
    if mode ~= 'a' then plan_leave(cl, x, mode) end
    return false
  end
  local key = x.name .. ':' .. sub(member, 13)
  waiting_add(cl, lane, -1)
  if byte(lane) == 100 and score_of(score) < now then
    local rec = redis.call('HGET', keys.jobs, key)
    if rec then
      old_remove(key, rec)
      job_expire(q, key, rec, now)
    else
      job_gone(key, q.name)
    end
    if mode ~= 'a' then
      plan_leave(cl, x, mode)
      lane_vanished(lane)
    elseif redis.call('EXISTS', lane_key(cl, x.name, lane)) == 0 then
      lane_vanished(lane)
    end
    return false
  end
  if x.tag > q.V[cl.c] then q.V[cl.c] = x.tag end
  if mode == 'a' then
    plan_take(cl.plan, x)
    x.tag = x.tag + cost_at(member, 9) / x.weight
    plan_put(cl.plan, x)
  else
    x.tag = x.tag + cost_at(member, 9) / x.weight
    plan_leave(cl, x, mode)
  end
  local pick = pick_new(pool, key, downstream, cl)
  if gated then
    if stops[1] then gates_pass(pick, stops) end
    if x.gates[1] then gates_pass(pick, x.gates) end
    if gate_kinds().q then gates_pass(pick, { 'q:' .. q.name }) end
    if reserve_before(q.name, cl.c) then gates_pass(pick, { 'o:' .. q.name }) end
  end
  if downstream ~= '' then
    local service = service_of(downstream)
    hold_add(pool.id, service, 1)
    shelf_passed(pool, service)
  end
  q.dispatched = q.dispatched + 1
  return true
end

-- queue_busy reports whether a class has runnable tenants.
local function queue_busy(q)
  for c = 1, q.n do
    if q.waiting[c] > 0 and class_busy(class_open(q, c)) then return true end
  end
  return false
end

local function queue_waits(q)
  for c = 1, q.n do
    if q.waiting[c] > 0 then return true end
  end
  return false
end

-- pool_waits reports whether a job in the pool's queues may be runnable. It asks only of a queue in which none waited for room before this
-- call, which has not changed it: there all may stand behind gates.
local function pool_waits(pool)
  for i = 1, pool.n do
    local q = queue_open(pool.queues[i])
    if queue_waits(q) and (q.stamp > 0 or q.touched or state_num('nh') > 0 or not nobody_runs(q)) then return true end
  end
  return false
end

-- fill_pool fills a pool's room and reports whether it is full, or the moves are out. Else pool.room is what is left.
local function fill_pool(pool, now)
  pool.room, pool.others = nil, nil
  if not pool_waits(pool) then return false end
  local room = pool.slots - (pool.entries or redis.call('XLEN', pool.key))
  pool.entries = nil
  while room > 0 do
    call.want = room
    local i, c, x = pool_next(pool)
    if not i then
      pool.room = room
      return false
    end
    if call.moves == 0 then
      moves_out('f' .. pool.id, now)
      return true
    end
    local q = queue_open(pool.queues[i])
    if serve(pool, q.classes[c], x, now) then
      pattern_commit(q, c)
      if pool.mode == 'w' and pool.n > 1 then
        pattern_commit(pool, i)
        pool.touched = true
      end
      room = room - 1
    end
  end
  return true
end

-- record_stands_in for one that is gone. It has no body, so whoever takes the job makes a dead letter of it: `record_gone`. It counts nowhere.
local function record_stands_in(pick)
  local queue = pick.cl.q.name
  local rec = char(1, 0, pick.cl.c - 1, 0, 1, 0) .. string.rep('\0', 28) .. char(#queue, #pick.downstream) .. queue .. pick.downstream
  redis.call('HSET', keys.jobs, pick.key, rec)
  old_gone(pick.key, queue)
  return rec
end

-- picks_records returns the records of the picks, which have those keys: of jobs that this call wrote, what it wrote, where these are many.
local function picks_records(job_keys)
  local written = call.written
  if written and not job_keys[2] and written[1] == job_keys[1] then return { written[2] } end
  if not written or 8 * #job_keys < #written then return redis.call('HMGET', keys.jobs, unpack(job_keys)) end
  local known, records, lacking, at = {}, {}, {}, {}
  for i = 1, #written, 2 do known[written[i]] = written[i + 1] end
  for i, key in ipairs(job_keys) do
    records[i] = known[key] or false
    if not records[i] then lacking[#lacking + 1], at[#at + 1] = key, i end
  end
  for k, rec in ipairs(lacking[1] and redis.call('HMGET', keys.jobs, unpack(lacking)) or {}) do records[at[k]] = rec end
  return records
end

local function picks_write()
  local picks, job_keys = call.picks, {}
  if #picks == 0 then return end
  for i, pick in ipairs(picks) do job_keys[i] = pick.key end
  local records = picks_records(job_keys)
  local uncounted = gates_any() and caps_version() or ''
  for i, pick in ipairs(picks) do
    local key, period, stream, rec = pick.key, pick.period, pick.pool.key, records[i] or record_stands_in(pick)
    if period then
      redis.call('HSET', keys.marks, key, format('%s|%d|%s', period, state_num('bt'), service_of(pick.downstream)))
      state_add('nm', 1)
      redis.call('XADD', stream, '*', 'j', key, 'r', rec, 'p', period)
    elseif uncounted ~= '' and not pick.counted then
      redis.call('XADD', stream, '*', 'j', key, 'r', rec, 'u', uncounted)
    else
      redis.call('XADD', stream, '*', 'j', key, 'r', rec)
    end
    local flags = byte(rec, 2)
    if flags >= COUNTED then -- else it has none of these
      old_remove(key, rec)
      if has_flag(flags, UNIQUE_START) and not has_flag(flags, UNIQUE_END) then unique_release(key) end
    end
    call.dispatched[#call.dispatched + 1] = key
  end
end

local function fill_once(now)
  for name in pairs(call.refill) do
    for id in string.gmatch(state_get('pools:' .. name) or '', '%S+') do call.refill_pools[id] = true end
  end
  local ids = names_sorted(call.refill_pools)
  call.refill, call.refill_pools = {}, {}
  for _, id in ipairs(ids) do
    local pool = pool_open(id)
    local full = pool and fill_pool(pool, now)
    for i = 1, pool and pool.n or 0 do
      local q = call.queues[pool.queues[i]]
      if q and q.touched then q.busy = full and queue_busy(q) end
    end
  end
  plans_write()
  picks_write()
  call.picks = {}
end

-- fill ends a script: it fills, passes units on, writes the state, and returns whether work is left for the
-- timers.
local function fill(now)
  repeat
    repeat
      for _, name in ipairs(next(call.pass_on) and names_sorted(call.pass_on) or {}) do
        call.pass_on[name] = nil
        gate_wake(name, now)
      end
      shelves_wake(now)
      fill_once(now)
    until not pools_idle(now) and next(call.pass_on) == nil and next(call.shelf_more) == nil
    call.written = nil -- Jobs that come back have other records.
  until not spill_return(now)
  leave_write()
  depth_write()
  waits_write()
  holds_write()
  for _, pool in pairs(call.pools) do
    if pool and pool.touched then pool_write(pool) end
  end
  gates_write()
  queue_write(now)
  state_write()
  return call.more
end

function reset.fill() call.picks, call.dispatched, call.want, call.written, call.beside = {}, {}, 1, nil, false end
