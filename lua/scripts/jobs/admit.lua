-- admit decides on a batch of jobs, all or nothing for each, and dispatches what has room.
-- KEYS[1] state  hash; the partition's other keys share its hash tag and are named after it
-- ARGV[1] now  microseconds, "" for Redis TIME
-- ARGV[2] version  of the policy that the caller's limits come from
-- ARGV[3] ended_cap  largest number of ended ids kept
-- ARGV[4] heads  packed, of each job '>i2', path from 1, negative to redrive a dead letter, and its record up to the arrival (with the letter's seq)
-- ARGV[5] ...  paths, as the fragment path says; then of each job: id, the rest of its record, of a redriven one who does it and why, as fragments/audit.lua
--   reads it, and where the record's flags say so the name under which its payload was uploaded (a redriven one has it already), the time it starts
--   (microseconds from now if negative), and its unique key with microseconds
-- Reply {"stale", version, ...} as fragments/path.lua says or {"decided" | "more", a line a job}, lines being packed, as ENTERED says, of one that is let in, behind
--   "bypassed " where it went beside the buckets of its queue and class; or "duplicate", "limited LEVEL LEFT WAIT_US BURST", "costly LEVEL BURST", "dedup",
--   "buckets LEVEL", "queues", "queues MADE" by its tenant, "deadline", "overflow JOBS BYTES" of its
--   tenant's depth in the queue, "full JOBS BYTES" over all its queues, "share JOBS BYTES" of what is left of the memory,
--   "uniques KEYS" or "lanes LANES" that it has,
--   "doomed WAIT_US EXCESS_US" that it would wait, and beyond what it may, "huge BYTES" where the job alone is above the bound, "memory", "paused WAIT_US REASON", "unique WAIT_US KEY" of the job
--   that holds it, "parked WAIT_US JOBS DOWNSTREAM" whose breaker is not closed, "gone" (no dead letter); "dropped N "
--   stands before an admission that cost N older jobs; LEFT and BURST of a refusal in micro-tokens, WAIT_US -1 for unknown
-- Never charges a job that it refuses, reads a client's clock, or writes before the first admitted job; where it admits none it
--   may forget queues, and uploaded payloads, and notes that the clock was set back. A payload that is not there, as Redis was full, refuses its job with "memory".
-- JOBS are the jobs of calls, in tables that outlast them to be written over, as those of paths do; REDRIVEN are those of dead letters that are let in, of which call.redriven
-- says how many there are.
local JOBS, REDRIVEN = {}, {}
function reset.admit()
  call.jobs, call.job_keys, call.uniques, call.seen = {}, {}, {}, {}
  call.writes, call.admitted, call.redriven, call.answers, call.parkings, call.memory = {}, {}, 0, {}, {}, false
end

-- record_stamp returns the record of a job with flags, seq, score and arrival filled in, 8 bytes each of the latter.
local function record_stamp(job, seq, score, arrival)
  local first, flags = job.first, job.flags
  if byte(first, 2) ~= flags then first = sub(first, 1, 1) .. char(flags) .. sub(first, 3) end
  return first .. seq .. score .. arrival .. job.rest
end

-- What a job that is let in is answered: a byte, where it is; its position in its lane, or among those kept aside, 0 for none; how many microseconds it waits at
-- most, -1 for unknown; and, in whole tokens, what the bucket on its way has left that holds least after it, and that bucket's burst, 0 where there is none.
local ENTERED, STRAIGHT, LATER, SPILLED, WAITS = '<Bdddd', 1, 2, 3, 4

-- memory_left returns how many bytes Redis may take until it has used MEMORY_FULL of its maxmemory, 0 where it has; nil while it has
-- used less than MEMORY_SHARED, up to which nobody counts who has what. It asks at most every MEMORY_EVERY microseconds, because
-- asking takes longer than admitting, and only for jobs that nothing else refuses: a call that admits none does not note the
-- answer, which is `mf`: 0 for nil, 1 for 0, else the bytes.
local MEMORY_EVERY, MEMORY_SHARED, MEMORY_FULL = 100000, 0.6, 0.9

-- memory_of_scripts is what the interpreter has, a megabyte or so that it gives back as it collects garbage: nobody's jobs. Redis counts it as used from 8 on,
-- and refuses for it, so it may take half of what is kept free.
local SCRIPTS_COUNTED = (redis.REDIS_VERSION_NUM or 0) >= 0x80000
local function memory_of_scripts(info, limit)
  return SCRIPTS_COUNTED and math.min(tonumber(match(info, 'used_memory_vm_total:(%d+)') or 0), limit * (1 - MEMORY_FULL) / 2) or 0
end

local function memory_left()
  if not call.memory then
    if math.abs(call.now - state_num('ma')) >= MEMORY_EVERY then
      local info = redis.pcall('INFO', 'memory')
      info = type(info) == 'string' and info or ''
      local limit = tonumber(match(info, 'maxmemory:(%d+)') or 0)
      local used = tonumber(match(info, 'used_memory:(%d+)') or 0) - tonumber(match(info, 'not_counted_for_evict:(%d+)') or 0) - memory_of_scripts(info, limit)
      state_set('ma', call.now)
      state_set('mf', used > limit * MEMORY_SHARED and limit > 0 and math.max(1, floor(limit * MEMORY_FULL - used)) or 0)
    end
    call.memory = state_num('mf')
  end
  if call.memory > 0 then return call.memory > 1 and call.memory or 0 end
end

-- job_options reads what follows a record whose flags say so, and returns where the next job begins.
local function job_options(job, at)
  if has_flag(job.flags, LARGE) and not job.redrive then
    job.uploaded = call.prefix .. 'upload:' .. call.argv[at]
    job.payload = redis.call('STRLEN', job.uploaded)
    at = at + 1
  end
  if has_flag(job.flags, DELAYED) then
    local start = tonumber(call.argv[at])
    start = start < 0 and call.now - start or start
    if start > call.now then job.start = start end
    job.flags = job.flags - DELAYED
    at = at + 1
  end
  if has_flag(job.flags, UNIQUE_END) or has_flag(job.flags, UNIQUE_START) then
    job.unique, job.unique_for = job.path.tenant .. ':' .. call.argv[at], tonumber(call.argv[at + 1])
    at = at + 2
  end
  return at
end

-- redrives_tell tells the audit of the dead letters that are on their way again.
local function redrives_tell()
  local of, by = {}, nil
  for i = 1, call.redriven do
    local name = 'q:' .. REDRIVEN[i].path.queue
    of[name], by = (of[name] or 0) + 1, REDRIVEN[i].by
  end
  for name, n in pairs(of) do audit_act(call.now, by_read(by), name, n) end
end

-- answered is the reply of a call that has decided.
local function answered(word) return pressures_told({ word, unpack(call.answers) }, call.now) end

-- over_share reports whether a tenant has jobs that wait in a class, of this call too, or has had more service there than those that wait.
local function over_share(path)
  local q = queue_open(path.queue)
  local cl = class_open(q, path.class)
  if cl.let_in and cl.let_in[path.tenant] or tenant_open(cl, path.tenant) then return true end
  local kept = redis.call('ZSCORE', cl.idle, path.tenant)
  return kept and score_of(kept) > q.V[path.class]
end

-- pressure_refusal returns the refusal of a job of which its queue takes no more at its level.
local function pressure_refusal(path)
  local level = pressure_of(path.queue, call.now)
  return (level >= path.from or path.over and level >= path.over and over_share(path)) and 'shed'
end

-- suspension returns the refusal of a job whose queue or tenant admits nothing for a time.
local function suspension_refusal(path)
  local found = redis.call('HMGET', keys.suspended, 'q:' .. path.queue, 't:' .. path.tenant, 'u:' .. path.tenant .. ':' .. path.queue)
  for i = 1, 3 do
    local until_us, reason = match(found[i] or '', '^(%d+)|(.*)$')
    until_us, reason = tonumber(until_us), reason and match(reason, '^(.*)\1%d+|[^\1]*$') or reason
    if until_us == 0 then return 'paused -1 ' .. reason end
    if until_us and until_us > call.now then return format('paused %d %s', until_us - call.now, reason) end
  end
end

-- unique_refused returns the refusal of a job whose unique key another holds, or whose tenant has as many as it may.
local function unique_refusal(job)
  local holder = call.uniques[job.unique] or redis.call('GET', call.prefix .. 'unique:' .. job.unique)
  if not holder then return uniques_full(job, call.now) end
  local wait = redis.call('PTTL', call.prefix .. 'unique:' .. job.unique)
  return format('unique %d ', wait > 0 and wait * 1000 or job.unique_for) .. holder
end

-- parked returns the refusal of a job whose downstream's breaker is not closed, when as many wait for it as may.
local function parked_refusal(job)
  local downstream = service_of(job.downstream)
  local g = downstream ~= '' and gate('b:' .. downstream)
  if not g or job.start then return nil end
  local parking = call.parkings[downstream]
  if not parking then
    local most = redis.call('HMGET', keys.maxparked, downstream, '')
    parking = { most = tonumber(most[1] or most[2] or math.huge), waiting = tonumber(redis.call('HGET', keys.waits, downstream) or 0) }
    call.parkings[downstream] = parking
  end
  if parking.waiting < parking.most then
    job.parking = parking
    return nil
  end
  local at = redis.call('ZSCORE', keys.due, 'b' .. downstream)
  return format('parked %d %d %s', at and math.max(0, score_of(at) - call.now) or -1, parking.waiting, downstream)
end

-- results_forget forgets what the jobs before those that are let in, of the same ids, have left. `ru` of the state says until when anybody's result is kept.
local function results_forget()
  if state_num('ru') < call.now then return end
  local results = {}
  for n, i in ipairs(call.admitted) do results[n] = call.prefix .. 'result:' .. call.jobs[i].key end
  redis.call('UNLINK', unpack(results))
end

local function spill_add(job)
  local name, key, rec = job.depth, job.key, job.stamped
  redis.call('ZADD', call.prefix .. 'spill:' .. name, format('%d', number_at(rec, 7)), key)
  redis.call('SADD', keys.spills, name)
  if job.start then redis.call('HSET', keys.starts, key, format('%d', job.start)) end
  if byte(rec, 2) % 2 == 1 then due_add(keys.due, number_at(rec, 15) + 1, 'x' .. key) end
end

-- drop_oldest makes room for a job with older ones of its tenant and queue. One whose record says that it counts nowhere has lost the one that it had:
-- if it waits no more, it was dispatched, and nothing is left of it but that it was counted.
local function drop_oldest(job)
  local q = queue_open(job.path.queue)
  for _, v in ipairs(job.victims) do
    local cl, lane, counts = class_open(q, byte(v.rec, 3) + 1), record_lane(v.rec), record_has(v.rec, COUNTED)
    local waits = redis.call('ZREM', lane_key(cl, job.path.tenant, lane), sub(v.rec, 7, 14) .. sub(v.rec, COST_AT, COST_AT + 3)
      .. match(v.key, ':(.*)$')) == 1
    if waits then
      waiting_add(cl, lane, -1)
      lane_shrunk(cl, job.path.tenant, lane)
    end
    if counts then old_remove(v.key, v.rec) else old_gone(v.key, q.name) end
    if counts or waits then
      dead_letter(v.key, v.rec, 'dropped', '', call.now)
      job.dropped = job.dropped + 1
    end
  end
end

-- uploads_drop drops the payloads of the jobs that have an answer already, which are those that are refused.
local function uploads_drop()
  local dropped_payloads = {}
  for i, job in ipairs(call.jobs) do
    if job.uploaded and call.answers[i] then dropped_payloads[#dropped_payloads + 1] = job.uploaded end
  end
  if #dropped_payloads > 0 then redis.call('UNLINK', unpack(dropped_payloads)) end
end

-- refused ends a call that admits nothing: room is made for the next.
local function refused_end()
  uploads_drop()
  if not call.crowded then return clock_keep() end
  queues_forget(call.now)
  state_write()
end

-- queue_quiet reports whether nobody is runnable in a queue in which jobs wait.
local function queue_quiet(q)
  if q.quiet == nil then q.quiet = nobody_runs(q) end
  return q.quiet
end

-- classes_open opens the classes of the jobs that are let in. Of several it asks whether nobody is runnable in a queue where jobs wait, and what their tenants have there.
local function classes_open()
  local several, gated, names = #call.admitted > 1, gates_any(), {}
  for _, i in ipairs(call.admitted) do
    local job = call.jobs[i]
    local path = job.path
    local tenant, cl = path.tenant, class_open(queue_open(path.queue), path.class)
    job.cl = cl
    if several and gated and cl.q.waiting[cl.c] > 0 and queue_quiet(cl.q) and cl.tenants[tenant] == nil then
      cl.tenants[tenant] = false -- Nobody is asked for twice.
      local of = names[cl] or {}
      names[cl], of[#of + 1] = of, tenant
    end
  end
  if not next(names) then return end
  for cl, of in pairs(names) do tenants_load(cl, of) end
  local lanes = {}
  for _, i in ipairs(call.admitted) do
    local job = call.jobs[i]
    local x = job.cl.q.quiet and job.cl.tenants[job.path.tenant]
    if x and x.mode == 'b' then lanes[#lanes + 1] = lane_key(job.cl, job.path.tenant, job.lane) end
  end
  call.beside = lanes[1] and redis.call('EXISTS', unpack(lanes)) > 0
end

-- gates_apart reports whether no gate stands on a job's way. Where there are none but breakers and `ng` names them, that is
-- known; else one call asks for all that might.
local function gates_apart(path, downstream)
  if not gates_any() then return true end
  if state_num('nh') > 0 then return false end
  local counts, services = match(state_get('ng'), '^([^|]*)(.*)$')
  local service = service_of(downstream)
  if match(counts, '^b%d+$') and (downstream == '' or services ~= '') then
    return downstream == '' or not string.find(services .. '|', '|' .. service .. '|', 1, true)
  end
  local names = counted_names(path.queue, path.tenant, downstream)
  if gate_kinds().r then names[#names + 1] = 'r:' .. path.tenant end
  for _, name in ipairs(lane_gates(downstream)) do names[#names + 1] = name end
  return not gates_stand(names)
end

-- waits_already reports whether a tenant has jobs that wait in a class where nobody is runnable: behind a gate, or one that is gone and of whose
-- waiters not all have looked again.
local function waits_already(q, path)
  return q.waiting[path.class] > 0 and redis.call('HEXISTS', class_open(q, path.class).ten, path.tenant) == 1
end

-- straight sends a job straight to the workers, where it is the only one of its call and nothing beside its deadline is to be kept of it, no gate
-- stands before it, nobody is runnable in its queue, none of its tenant waits in its class and the one pool that serves it has room, and reports whether it has: its tenant would enter at V
-- and leave again.
local function straight(job)
  local plain = job.flags < 2 or job.flags == TIMED + 1
  if #call.admitted > 1 or not plain or job.start or job.redrive or job.depth then return false end
  local q, downstream = queue_open(job.path.queue), sub(job.lane, 2)
  local id = state_get('pools:' .. q.name)
  local pool = id and pool_open(id)
  if not pool or pool.n > 1 or not gates_apart(job.path, downstream) then return false end
  local entries = redis.call('XLEN', pool.key)
  if entries >= pool.slots or not nobody_runs(q) or waits_already(q, job.path) then
    pool.entries = entries -- for the fill that follows
    return false
  end
  state_add('seq', 1)
  pattern_commit(q, job.path.class)
  q.dispatched, q.touched = 1, true
  hold_add(id, service_of(downstream), 1)
  pick_new(pool, job.key, downstream, nil)
  return true
end

-- place puts the jobs that are let in where they wait.
local function place()
  local admitted, jobs = call.admitted, call.jobs
  classes_open()
  for i = 1, call.redriven do letter_remove(REDRIVEN[i].key, REDRIVEN[i].live) end
  for _, i in ipairs(admitted) do
    if jobs[i].victims then drop_oldest(jobs[i]) end
  end
  for _, i in ipairs(admitted) do
    local job = jobs[i]
    local cl = job.cl
    local q = cl.q
    if (q.maker or job.start) and not queue_known(q.name) then made_note(job) end
    if job.uploaded then
      redis.call('RENAME', job.uploaded, call.prefix .. 'large:' .. job.key)
      redis.call('PERSIST', call.prefix .. 'large:' .. job.key)
    end
    if job.unique then
      redis.call('SET', call.prefix .. 'unique:' .. job.unique, job.key, 'PX', math.ceil(job.unique_for / 1000))
      if unique_stays(job) then
        uniques_add(job, call.now)
      else
        redis.call('HSET', keys.ukeys, job.key, job.unique)
      end
    end
    if job.depth and not job.spilled then depth_add(job.depth, 1, job.size) end
    if job.spilled then
      spill_add(job)
      job.position = redis.call('ZCARD', call.prefix .. 'spill:' .. job.depth)
    elseif job.start then
      due_add(keys.later, job.start, job.key)
      ahead_add(job, call.now)
    else
      if job.depth then old_add(job.key, job.stamped) end
      job.position = lane_join(cl, job.path.tenant, job)
      call.refill[q.name] = true
    end
  end
end

-- admitted_answer answers a call that lets jobs in, after it has dispatched what has room.
local function admitted_answer()
  local admitted, jobs, answers = call.admitted, call.jobs, call.answers
  if call.crowded then queues_forget(call.now) end
  redrives_tell()
  local continues = fill(call.now)
  local dispatched = {}
  for _, key in ipairs(call.dispatched) do dispatched[key] = true end
  for _, i in ipairs(admitted) do
    local job = jobs[i]
    local where, position, wait = STRAIGHT, 0, 0
    if job.spilled then
      where, position, wait = SPILLED, job.position, -1
    elseif job.start then
      where, wait = LATER, job.start - call.now
    elseif not dispatched[job.key] then
      where, position, wait = WAITS, job.position, wait_guess(job.path, job.lane, job.position)
    end
    local answer = struct_pack(ENTERED, where, position, wait, job.left, job.burst)
    if job.bypassed then answer = 'bypassed ' .. answer end
    answers[i] = job.dropped > 0 and format('dropped %d ', job.dropped) .. answer or answer
  end
  return answered(continues and 'more' or 'decided')
end

-- job_new returns the table of a call's job by its number, with nothing in it of the job that had it before.
local function job_new(n)
  local job = JOBS[n]
  if not job then
    job = {}
    JOBS[n] = job
  end
  job.start, job.unique, job.uploaded, job.payload, job.by, job.known = false, false, false, false, false, false
  job.live, job.again, job.gone, job.depth, job.spilled, job.victims, job.parking = false, false, false, false, false, false, false
  job.dropped = 0
  return job
end

-- jobs_read reads the jobs of a call: of each the first six bytes of its record, up to the suspicion, and the rest from the cost on, as fragments/record.lua
-- draws it.
local HEAD_OF_JOB, COST_SIZE = 2 + COST_AT - 1, 4
local function jobs_read(heads, at)
  local argv, jobs, job_keys = call.argv, call.jobs, call.job_keys
  for n = 1, #heads / HEAD_OF_JOB do
    local job, from = job_new(n), (n - 1) * HEAD_OF_JOB + 2
    local index, id, rest = struct_unpack('>i2', heads, from - 1), argv[at], argv[at + 1]
    local flags, queue_length, downstream_length = byte(heads, from + 2), byte(rest, COST_SIZE + 1, COST_SIZE + 2)
    local path = PATHS[math.abs(index)]
    local key = path.tenant .. ':' .. id
    job.path, job.redrive, job.id, job.key, job.head_at, job.first, job.rest, job.flags = path, index < 0, id, key, from, sub(heads, from + 1, from + 6), rest, flags
    job.cost, job.deadline, job.downstream = cost_at(rest, 1), flags % 2 == 1 and number_at(heads, from + 15) or 0, ''
    if downstream_length > 0 then job.downstream = sub(rest, COST_SIZE + 3 + queue_length, COST_SIZE + 2 + queue_length + downstream_length) end
    at = at + 2
    if index < 0 then
      job.by = argv[at]
      at = at + 1
    end
    if flags > 1 then at = job_options(job, at) end
    jobs[n], job_keys[n] = job, key
  end
end

-- known marks the jobs that live or have ended within the window.
local function known(heads)
  local live = redis.call('HMGET', keys.jobs, unpack(call.job_keys))
  local generation = state_num('gen')
  local young = state_num('en') > 0 and redis.call('SMISMEMBER', ended_key(generation), unpack(call.job_keys))
  local old = state_num('eo') > 0 and redis.call('SMISMEMBER', ended_key(generation - 1), unpack(call.job_keys))
  for i, job in ipairs(call.jobs) do
    job.known = live[i] or young and young[i] == 1 or old and old[i] == 1
    if job.redrive then
      job.live, job.again = live[i], live[i] and sub(live[i], 7, 14) ~= sub(heads, job.head_at + 7, job.head_at + 14)
      job.gone = not job.again and not (live[i] and redis.call('ZSCORE', keys.dead, job.key))
    end
  end
end

-- refusal returns why a job is refused, nil where it is let in. What asks more of Redis comes later.
local function refusal(job, q, makes)
  local path = job.path
  local why = job.payload == 0 and 'memory' or makes and made_full(path) or call.suspends and suspension_refusal(path)
    or path.from and pressure_refusal(path) or job.unique and unique_refusal(job) or call.parks and parked_refusal(job)
    or (job.start or call.wide) and lanes_full(job, call.now) or path.doomed and doomed_refusal(job) or decide(path, job.cost * 1000000)
  if why then return why end
  local left = memory_left()
  if left == 0 then return 'memory' end
  if call.bounded or q.overflow ~= '-' or left then return overflow(job, left) end
end

-- score_set sets the place of a job in its lane, in microseconds, and returns its bytes: its deadline, or the longest wait of its queue if
-- that is earlier, else the queue's horizon from when it starts.
local function score_set(job, q)
  local base, dated = job.start or call.now, job.flags % 2 == 1
  if q.wait > 0 and not (dated and job.deadline <= base + q.wait) then
    job.flags = job.flags - job.flags % 2 + 1 + TIMED
    job.score = base + q.wait
  elseif dated then
    job.score = job.deadline
  else
    job.score = base + q.horizon
    if not job.start then
      q.undated = q.undated or u64(job.score)
      return q.undated
    end
  end
  return u64(job.score)
end

-- enter charges a job that is let in, the seq-th of all, and notes what is to be written of it.
local function enter(job, q, i, seq_number, arrival)
  local path, seq = job.path, u64(seq_number)
  local cost = job.cost * 1000000
  local way = path.bypass and way_of(path, cost) or path
  charge(way, cost)
  if path.over then
    local cl = class_open(q, path.class)
    cl.let_in = cl.let_in or {}
    cl.let_in[path.tenant] = true
  end
  if path.doomed and not (job.start or job.spilled) then q.entering = (q.entering or 0) + 1 end
  if path.kept then usage_note(path, call.now, 1, 0, job.cost, 0, 0) end
  local _, b = path_least(way)
  job.left, job.burst, job.bypassed = b and floor(bucket_levels[b] / 1000000) or 0, b and bucket_bursts[b] / 1000000 or 0, way ~= path
  call.seen[job.key] = true
  local score = score_set(job, q)
  if job.depth and not job.spilled then job.flags = job.flags + COUNTED end
  if job.redrive then
    call.redriven = call.redriven + 1
    REDRIVEN[call.redriven] = job
    if record_has(job.live, HISTORY) then job.flags = job.flags + HISTORY end
  end
  if job.unique then call.uniques[job.unique] = job.key end
  if job.parking then job.parking.waiting = job.parking.waiting + 1 end
  job.stamped = record_stamp(job, seq, score, arrival)
  job.lane = lane_of(job)
  job.member = seq .. sub(job.rest, 1, COST_SIZE) .. job.id
  local writes, admitted = call.writes, call.admitted
  local n = #admitted
  writes[2 * n + 1], writes[2 * n + 2], admitted[n + 1] = job.key, job.stamped, i
end

function scripts.admit(KEYS, ARGV)
  local STATE, NOW, VERSION = KEYS[1], ARGV[1], ARGV[2]
  local ENDED_CAP, HEADS = tonumber(ARGV[3]), ARGV[4]
  call.buckets, call.global_bucket = 'b:', 'gb'
  call.now = now_us(NOW)
  local state_fields, asked = { 'pv', 'gb', 'gm', 'ru' }, {}
  local jobs_at = paths_read(5)
  for i = 1, call.path_count do
    local queue = call.paths[i].queue
    if not asked[queue] then
      asked[queue] = true
      local n = #state_fields
      state_fields[n + 1], state_fields[n + 2], state_fields[n + 3] = 'q:' .. queue, 'cfg:' .. queue, 'pools:' .. queue
      if call.paths[i].from then state_fields[n + 4] = 'pressure:' .. queue end
    end
  end
  call_begin(call.now, state_fields)
  local stale, records = stale_reply(VERSION)
  if stale then return stale end
  if records and state_num('nb') >= RECORDED then
    for i = 1, call.owners do call.own_records[OWNERS[i].name] = records[i] end
  end
  buckets_read()
  jobs_read(HEADS, jobs_at)
  known(HEADS)

  local ended_count = state_num('en') + state_num('eo')
  call.suspends, call.parks = state_num('np') > 0, state_num('nk') > 0 and gates_any()
  call.bounded, call.wide = state_num('nb') > 0, state_num('wl') > 0
  local last_seq, arrival, answers = state_num('seq'), u64(call.now), call.answers
  for i, job in ipairs(call.jobs) do
    if job.gone then
      answers[i] = 'gone'
    elseif job.again or job.known and not job.redrive or call.seen[job.key] then
      answers[i] = 'duplicate'
    elseif ended_count >= ENDED_CAP then
      answers[i] = 'dedup'
    elseif job.flags % 2 == 1 and job.deadline < (job.start or call.now) then
      answers[i] = 'deadline'
    else
      local q = queue_open(job.path.queue)
      local makes = q.fresh and not queue_known(q.name)
      local why = refusal(job, q, makes)
      if why then
        answers[i] = why
      else
        last_seq = last_seq + 1
        enter(job, q, i, last_seq, arrival)
        if makes then made_plan(job.path) end
      end
    end
  end
  if #call.admitted == 0 then
    refused_end()
    return answered('decided')
  end

  local answer = redis.pcall('HSET', keys.jobs, unpack(call.writes))
  if type(answer) == 'table' and answer.err then
    if not match(answer.err, 'OOM') then return redis.error_reply(answer.err) end
    for _, i in ipairs(call.admitted) do answers[i] = 'memory' end
    uploads_drop()
    return answered('decided')
  end
  call.written = call.writes

  buckets_write(call.now)
  usage_write(call.now)
  uploads_drop()
  results_forget()
  state_set('seq', last_seq)
  state_add('accepted', #call.admitted - call.redriven)

  if not straight(call.jobs[call.admitted[1]]) then place() end
  return admitted_answer()
end
