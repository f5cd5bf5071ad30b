-- arrive puts jobs of a tenant that moves here from another partition where they stood there (headgate migrate).
-- KEYS[1] state  hash; the partition's other keys share its hash tag and are named after it
-- ARGV[1] now  microseconds, "" for Redis TIME
-- ARGV[2] ...  of each job: key, record, place (lane, later, dead or spill), time (microseconds: when it starts, of a letter when it
--   died, else 0), why it died as `why` has it, the unique key that it is to release as `ukeys` has it, "" for none
-- Reply {"arrived", how many were not here before}
-- Never takes a job twice, dispatches one, or asks a limit: they were charged where they come from. Payloads and histories under
--   keys of their own are there before.
-- @flag allow-oom
-- @relief
local function letter_arrive(key, rec, at, why)
  local queue = record_queue(rec)
  letter_place(key, rec, at, why)
  queue_open(queue).touched = true -- Whoever looks at the letters of all queues is to find this one.
  letters_arm(queue)
end

local function spilled_arrive(key, rec, at)
  local name = depth_name(key, rec)
  redis.call('ZADD', call.prefix .. 'spill:' .. name, format('%d', number_at(rec, 7)), key)
  redis.call('SADD', keys.spills, name)
  if record_has(rec, DELAYED) then redis.call('HSET', keys.starts, key, at) end
  if byte(rec, 2) % 2 == 1 then due_add(keys.due, number_at(rec, 15) + 1, 'x' .. key) end
  due_add(keys.due, call.now + CONTINUE_AFTER, 'o' .. name) -- it may have been on its way back
end

local function job_arrive(key, rec, place, at, why, unique)
  redis.call('HSET', keys.jobs, key, rec)
  state_set('seq', math.max(state_num('seq'), number_at(rec, 7)))
  state_add('accepted', 1)
  if unique ~= '' then redis.call('HSET', keys.ukeys, key, unique) end
  if record_has(rec, COUNTED) then
    depth_add(depth_name(key, rec), 1, job_size(key, rec))
  else
    state_set('pr', 'arrived') -- It may have moved before it was counted, into a bound that came after it (recount.lua).
  end
  if place == 'dead' then
    letter_arrive(key, rec, at, why)
  elseif place == 'spill' then
    spilled_arrive(key, rec, at)
  elseif place == 'later' then
    due_add(keys.later, tonumber(at), key)
  else
    local tenant, id = key_split(key)
    local q, r = queue_open(record_queue(rec)), record_read(rec)
    rec = record_in(q, key, rec)
    old_add(key, rec)
    lane_place(class_open(q, byte(rec, 3) + 1), tenant, r.lane, r.score, r.order .. id)
  end
end

function scripts.arrive(KEYS, ARGV)
  local STATE, NOW = KEYS[1], ARGV[1]
  local JOBS_AT, JOB_SIZE = 2, 6
  call.now = now_us(NOW)

  call_begin(call.now, {})
  local job_keys = {}
  for i = JOBS_AT, #ARGV, JOB_SIZE do job_keys[#job_keys + 1] = ARGV[i] end
  local here, arrived = redis.call('HMGET', keys.jobs, unpack(job_keys)), 0
  for i = 1, #job_keys do
    if not here[i] then
      local at = JOBS_AT + JOB_SIZE * (i - 1)
      job_arrive(job_keys[i], ARGV[at + 1], ARGV[at + 2], ARGV[at + 3], ARGV[at + 4], ARGV[at + 5])
      arrived = arrived + 1
    end
  end
  fill(call.now)
  return { 'arrived', format('%d', arrived) }
end
