-- finish ends, retries or hands back jobs that a worker holds, and fills the room.
-- KEYS[1] state  hash; the partition's other keys share its hash tag and are queues_named after it
-- ARGV[1] now  microseconds, "" for Redis TIME
-- ARGV[2] pool  id
-- ARGV[3] worker  name
-- ARGV[4] heads  packed: '<I2', how many ends there are; then of each job '<I2I6': which of the ends it came to, from 1, and microseconds that it ran
-- ARGV[5] ...  where jobs have told what they cost: "spent", the version of the policy that the limits come from, paths as the
--   fragment path says, and of each path the job from 1 and the tokens that it has cost; then the ends that are not alike: outcome, delay in microseconds, reason, text;
--   then of each job: lease token, key.
--   Outcomes: complete (a job that owns nothing but its record, and no unit of a breaker; delay is what its entry says of caps
--   that do not count it, see gate.lua, reason its downstream, text its queue),
--   complete_full (any; with a delay, text is its result and is kept for so long), retry (an attempt burnt; delay),
--   dead (reason, text), release (none burnt; delay, 0 for at once, longer each time for the text "unknown_type TYPE"), expire
-- Reply {"stale", version, ...} as fragments/path.lua says, or {"finished" | "more", a word a job}: done, retried, dead, expired, released, cancelled, or lost; no words where
--   all are done
-- Never believes a worker whose lease is gone: its entry left the stream with the lease. Never trues a cost up but with what ends the job,
-- so never twice.
-- @flag allow-oom
-- take_held marks the jobs whose entries were still the caller's, and returns the tokens of all.
local function take_held(pool_key, jobs)
  local tokens = {}
  for i, job in ipairs(jobs) do tokens[i] = job.token end
  local all = redis.call('XACK', pool_key, GROUP, unpack(tokens)) == #tokens
  for _, job in ipairs(jobs) do
    job.held = all or #redis.call('XRANGE', pool_key, job.token, job.token) == 1
  end
  return tokens
end

-- any_capped reports whether one of the jobs, all complete, counts against a cap, or may: one of an older release does not
-- name its queue.
local function any_capped()
  if not match(state_get('ng') or '', '^[^|]*[qtudo]') then return false end
  local version, names = caps_version(), {}
  for _, job in ipairs(call.jobs) do
    if job.text == '' then return true end
    if version == '' or job.delay ~= version then
      for _, name in ipairs(counted_names(job.text, match(job.key, '^[^:]*'), job.reason)) do names[#names + 1] = name end
    end
  end
  return gates_stand(names)
end

-- entries_leave removes the entries, and reads the records of the jobs where these are needed. An entry has a copy of one that is gone.
local function entries_leave()
  if call.records_needed then
    local records = redis.call('HMGET', keys.jobs, unpack(call.job_keys))
    for i, job in ipairs(call.jobs) do
      job.rec = records[i] or job.held and redis.call('XRANGE', call.ready, job.token, job.token)[1][2][4]
    end
  end
  redis.call('XDEL', call.ready, unpack(call.tokens))
end

-- noted stores what became of the delivery in the job's history.
local function noted(job, outcome, rec)
  job.rec = history_add(job.key, rec, outcome, job.ran, call.worker, job.text, call.now)
  redis.call('HSET', keys.jobs, job.key, job.rec)
end

local function retry(job)
  local r = record_read(job.rec)
  noted(job, 'failed', record_recount(job.rec, r.attempts + 1, r.suspicion))
  if r.attempts + 1 >= r.max then
    dead_letter(job.key, job.rec, 'max_attempts', job.text, call.now)
    return 'dead'
  end
  if r.flags % 2 == 1 and call.now + job.delay > r.score then
    job_expire(queue_open(r.queue), job.key, job.rec, call.now)
    return 'expired'
  end
  due_add(keys.later, call.now + job.delay, job.key)
  state_add('retried', 1)
  return 'retried'
end

-- unknown_delay returns how long a job stays away that is handed back. One of a type that no worker knew that it came to stays
-- longer each time in a row, by its history, twice as long every second time and up to UNKNOWN_MOST times, but not beyond its
-- deadline. The queue's field ut:QUEUE of the state says how often that was, when last, and which type.
local UNKNOWN_MOST = 300

local function unknown_delay(job)
  local kind = match(job.text, '^unknown_type (.*)$')
  if not kind then return job.delay end
  local r, n = record_read(job.rec), 0
  local lines = redis.call('LRANGE', call.prefix .. 'log:' .. job.key, 0, -1)
  while match(lines[#lines - n] or '', '^released|%d+|%d+|[^|]*|unknown_type ') do n = n + 1 end
  local count = tonumber(match(state_get('ut:' .. r.queue) or '', '^%d+') or 0) + 1
  state_set('ut:' .. r.queue, format('%d|%d|%s', count, call.now, kind))
  local delay = math.floor(job.delay * math.min(2 ^ ((n - 1) / 2), UNKNOWN_MOST))
  return r.flags % 2 == 1 and math.max(0, math.min(delay, r.score - call.now)) or delay
end

local function complete(job)
  if job.what == 'complete_full' and job.delay > 0 then
    local kept = math.ceil(job.delay / 1000)
    redis.call('SET', call.prefix .. 'result:' .. job.key, job.text, 'PX', kept)
    state_set('ru', math.max(state_num('ru'), call.now + 1000 * kept))
  end
  leave(job.key, 'completed', job.rec)
  return 'done'
end

local function outcome(job)
  if not job.held then return 'lost' end
  local cancelled = cancelled_take(job.key)
  if job.what == 'complete' and not job.rec then
    leave_plain(job.key, 'completed')
    return 'done'
  end
  if job.what == 'complete' or job.what == 'complete_full' then return complete(job) end
  if cancelled then
    leave(job.key, 'cancelled', job.rec)
    return 'cancelled'
  end
  if job.what == 'retry' then return retry(job) end
  if job.what == 'dead' then
    noted(job, 'failed', job.rec)
    dead_letter(job.key, job.rec, job.reason, job.text, call.now)
    return 'dead'
  end
  if job.what == 'expire' then
    job_expire(queue_open(record_queue(job.rec)), job.key, job.rec, call.now)
    return 'expired'
  end
  if job.text ~= 'suspect' then noted(job, 'released', job.rec) end -- A suspect that waits for others may come often.
  local delay = unknown_delay(job)
  if delay > 0 then
    due_add(keys.later, call.now + delay, job.key)
  else
    job_return(job.key, job.rec, call.now)
  end
  return 'released'
end

-- spent_read notes what jobs have cost, by the job's number, and returns where the jobs begin.
local function spent_read(at)
  call.spent, call.keeps_usage = {}, false
  if call.argv[at] ~= 'spent' then return at end
  call.spent_version = call.argv[at + 1]
  call.buckets, call.global_bucket = 'b:', 'gb'
  at = paths_read(at + 2)
  for i = 1, call.path_count do
    call.keeps_usage = call.keeps_usage or call.paths[i].kept
    call.spent[tonumber(call.argv[at])] = { path = call.paths[i], cost = tonumber(call.argv[at + 1]) }
    at = at + 2
  end
  return at
end

-- true_up trues up the cost of a job that has ended. Nobody notes which way a job went that may go beside the buckets of its queue and class: what it did not need goes
-- back to the buckets of both ways, and what it lacks is taken of all.
local ARRIVAL_AT = 23
local function true_up(rec, spent)
  local reserved, arrival = cost_at(rec, COST_AT), number_at(rec, ARRIVAL_AT)
  usage_settle(spent.path, rec, arrival, spent.cost)
  if spent.cost < reserved and arrival < path_changed(spent.path) then return end -- Under other limits the buckets may have been others.
  local way, elapsed = spent.path, math.max(0, call.now - arrival)
  local bypass = way.bypass
  if bypass and spent.cost < reserved then
    way, bypass[2] = bypass, false
  elseif bypass then
    bypass[0], bypass[1] = false, false
    path_true_up(bypass, reserved, spent.cost, elapsed)
  end
  path_true_up(way, reserved, spent.cost, elapsed)
end

-- rendered corrects the tag of the tenant of a job by what it has cost in place of what it was dispatched for, as fairqueue's package comment says.
local function rendered(job, cost)
  local reserved = cost_at(job.rec, COST_AT)
  if cost == reserved then return end
  local q, c = queue_open(record_queue(job.rec)), byte(job.rec, 3) + 1
  if c > q.n or q.waiting[c] == 0 then return end
  local cl, tenant, weight = class_open(q, c), match(job.key, '^[^:]*'), 1
  if state_num('nw') > 0 then weight = weights_of(q.names[c], { tenant })[1] end
  local V, more, x = q.V[c], (cost - reserved) / weight, tenant_open(cl, tenant)
  if x and x.mode == 'a' then
    local member = tenant_entry(x) .. tenant
    local before = score_of(redis.call('ZSCORE', cl.act, member))
    local tag = before + more
    if more < 0 then tag = math.min(before, math.max(tag, V - reserved / weight)) end
    redis.call('ZADD', cl.act, format('%.17g', tag), member)
    return
  end
  if redis.call('EXISTS', cl.act) == 0 then return end
  local kept = redis.call('ZSCORE', cl.idle, tenant)
  local tag = math.max(V, kept and score_of(kept) or V) + more
  if tag > V then
    redis.call('ZADD', cl.idle, format('%.17g', tag), tenant)
  elseif kept then
    redis.call('ZREM', cl.idle, tenant)
  end
end

-- spent_settle trues up what has ended.
local LEAVES = { done = true, dead = true, expired = true }
local function spent_settle(words)
  if not next(call.spent) then return end
  buckets_read()
  for i, job in ipairs(call.jobs) do
    local spent = call.spent[i]
    if spent and LEAVES[words[i]] then
      true_up(job.rec, spent)
      rendered(job, spent.cost)
    end
  end
  buckets_write(call.now)
  usage_write(call.now)
end

-- COUNTERS has the field that notes what becomes of a job, of outcomes that are not of every call.
local COUNTERS = { retry = 'retried', dead = 'nd', complete_full = 'ru' }

-- ENDING are the jobs of calls, in tables that outlast them to be written over.
local ENDING = {}

-- job_ending returns the table of a call's job by its number.
local function job_ending(n, token, key, to, ran)
  local job = ENDING[n]
  if not job then
    job = { token = false, key = false, what = false, delay = false, reason = false, text = false, ran = false, held = false, rec = false }
    ENDING[n] = job
  end
  job.token, job.key, job.what, job.delay, job.reason, job.text, job.ran, job.held, job.rec = token, key, to.what, to.delay, to.reason, to.text, ran, false, false
  return job
end

-- ends_read reads the ends that jobs came to, and returns where the jobs begin. The fields of the state that they need are added.
local ENDS, ENDS_SIZE, END_SIZE = '<I2', 2, 4
local function ends_read(heads, at, state_fields, queues_named)
  local argv, ends = call.argv, {}
  for i = 1, (struct_unpack(ENDS, heads)) do
    local to = { what = argv[at], delay = argv[at + 1], reason = argv[at + 2], text = argv[at + 3] }
    ends[i], at = to, at + END_SIZE
    if to.what ~= 'complete' then
      to.delay, call.records_needed = tonumber(to.delay), true
      local counter = COUNTERS[to.what]
      if counter then state_fields[#state_fields + 1] = counter end
    elseif not queues_named[to.text] then
      queues_named[to.text] = true
      state_fields[#state_fields + 1], state_fields[#state_fields + 2] = 'q:' .. to.text, 'cfg:' .. to.text
    end
  end
  return ends, at
end

-- endings_read reads the jobs that end.
local HEAD_OF_END, HEAD_OF_END_SIZE = '<I2I6', 8
local function endings_read(heads, ends, at)
  local argv, jobs, job_keys = call.argv, {}, {}
  for n = 1, (#heads - ENDS_SIZE) / HEAD_OF_END_SIZE do
    local to, ran = struct_unpack(HEAD_OF_END, heads, ENDS_SIZE + 1 + (n - 1) * HEAD_OF_END_SIZE)
    local key = argv[at + 1]
    jobs[n], job_keys[n] = job_ending(n, argv[at], key, ends[to], ran), key
    at = at + 2
  end
  call.jobs, call.job_keys = jobs, job_keys
end

function scripts.finish(KEYS, ARGV)
  local STATE, NOW, HEADS, SPENT_AT = KEYS[1], ARGV[1], ARGV[4], 5
  call.pool, call.worker = ARGV[2], ARGV[3]
  call.now = now_us(NOW)
  call.ready = call.prefix .. 'ready:' .. call.pool

  call.records_needed = false
  local state_fields, queues_named = { 'pool:' .. call.pool }, {}
  local jobs_at = spent_read(SPENT_AT)
  if jobs_at > SPENT_AT then
    call.records_needed = true
    for _, field in ipairs({ 'gb', 'gm', call.keeps_usage and 'us' or nil }) do state_fields[#state_fields + 1] = field end
    for i = 1, call.path_count do
      local queue = call.paths[i].queue
      if not queues_named[queue] then
        queues_named[queue] = true
        state_fields[#state_fields + 1], state_fields[#state_fields + 2] = 'q:' .. queue, 'cfg:' .. queue
      end
    end
  end
  local ends, first = ends_read(HEADS, jobs_at, state_fields, queues_named)
  endings_read(HEADS, ends, first)
  call_begin(call.now, state_fields)
  local stale = jobs_at > SPENT_AT and stale_reply(call.spent_version)
  if stale then return stale end

  if not state_get('pool:' .. call.pool) then
    local lost = {}
    for i = 1, #call.jobs do lost[i] = 'lost' end
    return { 'finished', unpack(lost) }
  end
  call.tokens = take_held(call.ready, call.jobs)
  call.records_needed = call.records_needed or state_num('nl') > 0 or any_capped()

  entries_leave()
  if call.records_needed then
    for _, job in ipairs(call.jobs) do
      if job.held then entry_release(call.pool, job.key, job.rec, job.what == 'complete') end
    end
  else
    for _, job in ipairs(call.jobs) do
      if job.held then entry_leave(call.pool, job.reason) end
    end
  end
  ended_rotate()
  local words, all_done = {}, true
  for i, job in ipairs(call.jobs) do
    local word = outcome(job)
    words[i], all_done = word, all_done and word == 'done'
  end
  spent_settle(words)
  leave_write()
  freed_wake(call.now)
  call.refill_pools[call.pool] = true
  local continues = fill(call.now)
  local told = continues and 'more' or 'finished'
  return all_done and { told } or { told, unpack(words) }
end
