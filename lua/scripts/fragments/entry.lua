-- held: what there is before a cap that is new. entries_count counts the entries of all ready streams by cap, and by
-- o:QUEUE|CLASS.
local function entries_count()
  local counts = {}
  for id in string.gmatch(state_get('pools') or '', '%S+') do
    for _, e in ipairs(redis.call('XRANGE', call.prefix .. 'ready:' .. id, '-', '+')) do
      local tenant = key_split(e[2][2])
      local r = record_read(e[2][4])
      for _, name in ipairs(cap_names(r.queue, tenant, sub(r.lane, 2), EVERY_KIND)) do counts[name] = (counts[name] or 0) + 1 end
      local of_class = 'o:' .. r.queue .. '|' .. r.class
      counts[of_class] = (counts[of_class] or 0) + 1
    end
  end
  return counts
end

-- entries_by_cap counts entries of ready streams by the caps that they count against, once in a call.
local function entries_by_cap()
  call.entries = call.entries or entries_count()
  return call.entries
end

-- cap_want makes a cap what the policy says, or takes it away. A pause goes on. known says that what passed before was
-- counted.
local function cap_want(name, limit, known)
  local g = gate(name)
  if g and not g.default and g.limit == 0 then
    paused_then(g, limit or '')
  elseif not limit then
    gate_remove(name)
  elseif not g or g.default then
    gate_count(name, 1)
    call.gates[name] = gate_parse(name, format('%s|%d|0||', limit, g and known and g.held or entries_by_cap()[name] or 0))
  else
    call.gates[name] = gate_parse(name, format('%s|%d|0||', limit, g.held))
  end
end

-- queue caps: caps that tenants have in single queues by their records, {"queues":{"QUEUE":{"max_running":N}}}, before max_running["TENANT:QUEUE"] of the policy and u:*:QUEUE. While a record
-- has some, `queuecaps` (HASH, `rq` counts it) has TENANT → QUEUE=RECORD;POLICY,…: what the record says, which is in force as the gate u:TENANT:QUEUE, and what the policy says, empty for
-- nothing, which an edit of the policy changes there and which is in force once more when the record says nothing. So a dispatch asks for no record, and is under such a cap as under
-- one of the policy.

-- queue_caps_recorded is how many tenants have some. Not by state_num, which would have a field that is to go be a 0.
local function queue_caps_recorded() return tonumber(state_get('rq') or 0) end

-- queue_caps_said returns the caps in single queues that the JSON of a record has, by queue; nil for none.
local function queue_caps_said(text)
  local at = string.find(text, '"queues":{', 1, true)
  if not at or not string.find(text, '"max_running":', at, true) then return nil end
  local ok, said = pcall(cjson.decode, text)
  local of = {}
  for queue, each in pairs(ok and type(said) == 'table' and type(said.queues) == 'table' and said.queues or {}) do
    local limit = type(each) == 'table' and tonumber(each.max_running) or 0
    if limit > 0 then of[queue] = format('%d', limit) end
  end
  return next(of) and of or nil
end

-- queue_caps_read returns the row of a tenant as { record, policy } by queue, nil for none.
local function queue_caps_read(tenant)
  local row = queue_caps_recorded() > 0 and redis.call('HGET', keys.queuecaps, tenant)
  if not row then return nil end
  local of = {}
  for queue, limit, of_policy in string.gmatch(row, '([^=,]+)=(%d+);(%d*)') do of[queue] = { limit, of_policy } end
  return of
end

local function queue_caps_write(tenant, of)
  local parts = {}
  for i, queue in ipairs(names_sorted(of)) do parts[i] = format('%s=%s;%s', queue, of[queue][1], of[queue][2]) end
  redis.call('HSET', keys.queuecaps, tenant, table.concat(parts, ','))
end

-- cap_standing returns the limit that a gate has of its own, under a pause and for a time that which is to follow; empty for none.
local function cap_standing(g)
  if not g or g.default then return '' end
  local until_us, after = match(g.rest, '^(%d+)|([^|]*)|')
  if g.limit == 0 or until_us ~= '0' then return after ~= '0' and after or '' end
  return format('%d', g.limit)
end

-- record_queue_caps puts in force what the record of a tenant says of caps in single queues from now on, by its JSON and that of the one before, empty for none. It returns the gates at
-- which that is another cap, which who waits for them is then to hear. It asks nothing where neither says something.
local function record_queue_caps(tenant, before, after)
  local is = queue_caps_said(after)
  if not is and not queue_caps_said(before) then return NO_GATES end
  local was, names, all = queue_caps_read(tenant), {}, {}
  local row, left = {}, {}
  for queue in pairs(was or {}) do left[queue] = true end
  for queue in pairs(is or {}) do left[queue] = true end
  for _, queue in ipairs(names_sorted(left)) do
    local had, limit = was and was[queue], is and is[queue]
    if had and had[1] == limit then
      row[queue] = had
    else
      names[#names + 1] = 'u:' .. tenant .. ':' .. queue
    end
  end
  if not names[1] then return NO_GATES end
  state_get('ng')
  call.entries = nil
  for i, name in ipairs(names) do all[i], all[#names + i] = gate_default(name), name end
  gates_load(all)
  for _, name in ipairs(names) do
    local queue = sub(name, #tenant + 4)
    local had, limit, g = was and was[queue], is and is[queue], gate(name)
    local of_policy, standing = had and had[2] or '', cap_standing(g)
    if standing ~= (had and had[1] or '') then of_policy = standing end -- Also where an edit of the policy by an older release has put that there.
    if limit then row[queue] = { limit, of_policy } end
    cap_want(name, limit or of_policy ~= '' and of_policy, true)
    call.gates_dirty[name] = true
  end
  local n = queue_caps_recorded()
  if next(row) then
    queue_caps_write(tenant, row)
    if not was then state_set('rq', n + 1) end
  elseif was then
    redis.call('HDEL', keys.queuecaps, tenant)
    state_set('rq', n > 1 and n - 1)
  end
  return names
end

-- queue_cap_aside notes what the policy says of a tenant's cap in a queue, false for nothing, where a record says something else, and returns that; nil where none does.
local function queue_cap_aside(name, text)
  if byte(name) ~= 117 or gate_default(name) == name then return nil end
  local tenant, queue = match(name, '^u:([^:]*):(.*)$')
  local of = queue_caps_read(tenant)
  if not of or not of[queue] then return nil end
  of[queue][2] = text or ''
  queue_caps_write(tenant, of)
  return of[queue][1]
end

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
  local service = service_of(downstream)
  hold_add(pool_id, service, -1)
  local name = pool_id .. ':' .. service
  call.shelf_freed[name] = (call.shelf_freed[name] or 0) + 1
end

-- entry_release gives back the units of a job that leaves a ready stream. A plain one has none of a breaker.
local function entry_release(pool_id, key, rec, plain)
  if byte(rec, 6) > 0 then start_forget(key) end
  local r = record_read(rec)
  local downstream = sub(r.lane, 2)
  entry_leave(pool_id, downstream)
  if not plain and downstream ~= '' then mark_release(key, 'b:' .. service_of(downstream)) end
  local tenant = key_split(key)
  local names = cap_names(r.queue, tenant, downstream)
  gates_load(names)
  for _, name in ipairs(names) do
    if gate(name) then
      gate_leave(name)
      call.freed[name] = true
    end
  end
  if reserve_before(r.queue, r.class + 1) then
    gate_leave('o:' .. r.queue)
    call.freed['o:' .. r.queue] = true
  end
end

-- job_return puts a job back where it stood, same seq and same score, or has `join` do so, which is given what a job has of that, and returns its record, nil where it has
-- none. A job past its deadline expires.
local function job_return(key, rec, now, join)
  if not rec then
    leave_plain(key, 'record_gone')
    return nil
  end
  local tenant, id = key_split(key)
  local r = record_read(rec)
  local q = queue_open(r.queue)
  if byte(r.lane) == 100 and r.score < now then
    job_expire(q, key, rec, now)
  else
    rec = record_in(q, key, rec)
    old_add(key, rec)
    local cl, member = class_open(q, byte(rec, 3) + 1), r.order .. id
    if join then
      join(cl, tenant, { lane = r.lane, score = r.score, member = member, after = false })
    else
      lane_place(cl, tenant, r.lane, r.score, member)
    end
  end
  return rec
end

-- surplus: entries for which no slot is left go back to their lanes.
-- entries_take takes entries out of a ready stream and returns their jobs' keys and records. An entry has a copy of a record that is
-- gone.
local function entries_take(pool, entries)
  local ids, job_keys = {}, {}
  for i, e in ipairs(entries) do
    ids[i], job_keys[i] = e[1], e[2][2]
  end
  redis.call('XACK', pool.key, GROUP, unpack(ids))
  redis.call('XDEL', pool.key, unpack(ids))
  call.refill_pools[pool.id] = true
  local records = redis.call('HMGET', keys.jobs, unpack(job_keys))
  for i, e in ipairs(entries) do
    if not records[i] then
      records[i] = e[2][4]
      redis.call('HSET', keys.jobs, job_keys[i], records[i])
    end
  end
  return job_keys, records
end

-- delivery_back puts a job back from a ready stream, unless it was cancelled there.
local function delivery_back(key, rec, now)
  if cancelled_take(key) then
    leave(key, 'cancelled', rec)
  else
    job_return(key, rec, now)
  end
end

-- surplus_return puts back what no slot is left for. Entries that nobody has read follow the group's last.
local function surplus_return(pool, now)
  local surplus = redis.call('XLEN', pool.key) - pool.slots
  if surplus <= 0 then return end
  local info = redis.call('XINFO', 'GROUPS', pool.key)[1]
  local last
  for i = 1, #info, 2 do
    if info[i] == 'last-delivered-id' then last = info[i + 1] end
  end
  local entries = redis.call('XREVRANGE', pool.key, '+', '(' .. last, 'COUNT', math.min(surplus, call.moves))
  if #entries == 0 then return end
  call.moves = call.moves - #entries
  local job_keys, records = entries_take(pool, entries)
  for i, key in ipairs(job_keys) do
    entry_release(pool.id, key, records[i])
    delivery_back(key, records[i], now)
  end
  if surplus > #entries and call.moves == 0 then moves_out('f' .. pool.id, now) end
end
