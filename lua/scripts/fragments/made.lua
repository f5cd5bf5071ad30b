-- made: queues that a job has made: no worker serves them, and the policy does not name them. HASH `made`: QUEUE → until|tenant,
-- who made it, and when the last job starts that was put off there while nobody served it, in microseconds; "TENANT:" → how
-- many it made. From half of a bound on, those without jobs, letters and holds are forgotten.
local QUEUE_CAP, MADE_CAP, LOOKS = 4096, 256, 64
function reset.made() call.made_by, call.making, call.crowded = {}, 0, false end -- what this call makes

local function made_count(tenant)
  call.made_by[tenant] = call.made_by[tenant] or tonumber(redis.call('HGET', keys.made, tenant .. ':') or 0)
  return call.made_by[tenant]
end

-- made_full returns the refusal of a job that would make a queue.
local function made_full(path)
  if queue_open(path.queue).maker then return nil end
  local all, own = state_num('nq') + call.making, made_count(path.tenant)
  call.crowded = call.crowded or all >= QUEUE_CAP / 2 or own >= MADE_CAP / 2
  if all >= QUEUE_CAP then return 'queues' end
  if own >= MADE_CAP then return format('queues %d', own) end
end

-- made_plan says that the tenant makes the queue.
local function made_plan(path)
  local q = queue_open(path.queue)
  if q.maker then return end
  q.maker, call.made_by[path.tenant], call.making = path.tenant, made_count(path.tenant) + 1, call.making + 1
end

-- made_note notes the queue of a job that was admitted, where nobody knows it. One whose jobs all wait for a time is there, too.
local function made_note(job)
  local q, start = queue_open(job.path.queue), job.start or 0
  if start > 0 then q.touched = true end
  local until_us, maker = q.put_off
  if not until_us then
    until_us, maker = match(redis.call('HGET', keys.made, q.name) or '', '^(%d+)|(.*)$')
    if not maker then redis.call('HINCRBY', keys.made, (q.maker or job.path.tenant) .. ':', 1) end
    until_us, q.maker = tonumber(until_us or -1), maker or q.maker or job.path.tenant
  end
  q.put_off = math.max(until_us, start)
  if q.put_off > until_us then redis.call('HSET', keys.made, q.name, format('%d|%s', q.put_off, q.maker)) end
end

local function made_forget(name)
  local tenant = match(redis.call('HGET', keys.made, name) or '', '|(.*)$')
  if not tenant then return end
  redis.call('HDEL', keys.made, name)
  if redis.call('HINCRBY', keys.made, tenant .. ':', -1) <= 0 then redis.call('HDEL', keys.made, tenant .. ':') end
end

-- queue_idle reports whether nothing waits in a queue, by its field in the state.
local function queue_idle(text)
  local numbers = queue_numbers(text)
  for i = 6, #numbers, 2 do
    if numbers[i] > 0 then return false end
  end
  return true
end

-- queues_forget looks at some LOOKS queues that this call is not about, and forgets those that nobody knows and that hold
-- nothing. Each call goes on where the last one ended.
local function queues_forget(now)
  redis.call('DEL', keys.relief)
  local found = redis.call('HSCAN', call.state, state_get('qs') or '0', 'MATCH', 'q:*', 'COUNT', LOOKS)
  state_set('qs', found[1] ~= '0' and found[1])
  for i = 1, #found[2], 2 do
    local name = sub(found[2][i], 3)
    if not call.queues[name] and queue_idle(found[2][i + 1]) then
      local until_us = tonumber(match(redis.call('HGET', keys.made, name) or '0|', '^(%d+)'))
      if queue_known(name) then
        made_forget(name)
      elseif until_us < now and redis.call('EXISTS', call.prefix .. 'dead:' .. name) == 0 and not gate('q:' .. name)
        and redis.call('HEXISTS', keys.suspended, 'q:' .. name) == 0 then
        made_forget(name)
        state_set('q:' .. name, false)
        state_add('nq', -1)
      end
    end
  end
end
