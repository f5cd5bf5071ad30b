-- look tells where a job is and what it waits for.
-- KEYS[1] state  hash; the partition's other keys share its hash tag and are named after it
-- ARGV[1] now  microseconds, "" for Redis TIME
-- ARGV[2] key  of the job
-- Reply {place, record, name, value…}. Places: waiting (position; wait in microseconds, -1 for unknown; mode of its tenant;
--   blocked 1 where its lane stands behind the gate of its downstream; gate, of each closed one its name and text), later
--   (at), spilled (position; at, if it has a time of its own), ready (pool), running (pool, worker, token, since), dead (at,
--   why), ended, unknown; each with log, a line of history
-- Never writes.
local function tell(name, value)
  call.told[#call.told + 1] = name
  call.told[#call.told + 1] = value
end

local function microseconds(s)
  return format('%d', score_of(s))
end

-- entry_tell finds a job in a ready stream.
local function entry_tell()
  for id in string.gmatch(state_get('pools') or '', '%S+') do
    local ready = call.prefix .. 'ready:' .. id
    for _, e in ipairs(redis.call('XRANGE', ready, '-', '+')) do
      if e[2][2] == call.key then
        tell('pool', id)
        local pending = redis.call('XPENDING', ready, GROUP, e[1], e[1], 1)[1]
        if not pending then return 'ready' end
        tell('worker', pending[2])
        tell('token', e[1])
        tell('since', format('%d', call.now - pending[3] * 1000))
        return 'running'
      end
    end
  end
  return 'unknown'
end

-- gate_line is the text of a closed gate, of a rate with the time of the next dispatch instead of the bucket.
local function gate_line(g)
  if g.burst then return format('%.17g|%d|%d', g.rate, g.burst, call.now + bucket_wait(g.level, g.stamp, g.rate, DISPATCH, state_num('bt'))) end
  return (g.default or g.over) and format('%d|%d|0||', g.over or g.limit, g.held) or gate_text(g)
end

-- lane_tell tells of a job in a lane, given its position there.
local function lane_tell(r, tenant, position)
  local cq = r.class .. ':' .. r.queue
  tell('position', position + 1)
  local x = redis.call('HGET', call.prefix .. 'ten:' .. cq, tenant)
  tell('mode', sub(x, 1, 1))
  tell('wait', format('%d', wait_guess({ tenant = tenant, queue = r.queue, class = r.class + 1 }, r.lane, position + 1)))
  local at = redis.call('ZSCORE', call.prefix .. 'lanes:' .. cq .. ':' .. tenant, r.lane)
  if at and score_of(at) >= 4e15 then tell('blocked', '1') end
  if gates_any() then
    for _, names in ipairs({ lane_gates(sub(r.lane, 2)), tenant_gates(tenant, r.queue), { 'q:' .. r.queue } }) do
      for _, name in ipairs(names) do
        if gate_closed(name) then tell('gate', name .. '|' .. gate_line(gate(name))) end
      end
    end
  end
  return 'waiting'
end

local function place(rec)
  local r = record_read(rec)
  local tenant, id = key_split(call.key)
  local at = redis.call('ZSCORE', keys.later, call.key)
  if at then
    tell('at', microseconds(at))
    return 'later'
  end
  at = redis.call('ZSCORE', keys.dead, call.key)
  if at then
    tell('at', microseconds(at))
    tell('why', redis.call('HGET', keys.why, call.key))
    return 'dead'
  end
  local lane = call.prefix .. 'lane:' .. r.class .. ':' .. r.queue .. ':' .. tenant .. ':' .. r.lane
  local position = redis.call('ZRANK', lane, r.order .. id)
  if position then return lane_tell(r, tenant, position) end
  position = redis.call('ZRANK', call.prefix .. 'spill:' .. tenant .. ':' .. r.queue, call.key)
  if position then
    tell('position', position + 1)
    local start = redis.call('HGET', keys.starts, call.key)
    if start then tell('at', start) end
    return 'spilled'
  end
  return entry_tell()
end

function scripts.look(KEYS, ARGV)
  local STATE, NOW, KEY = KEYS[1], ARGV[1], ARGV[2]
  call.now, call.key, call.told = now_us(NOW), KEY, {}

  state_load({ 'ng', 'pools' })
  state_set('bt', bucket_time(call.now)) -- It is never written.
  local rec = redis.call('HGET', keys.jobs, KEY)
  if not rec then
    for age = 0, 1 do
      if redis.call('SISMEMBER', ended_key(state_num('gen') - age), KEY) == 1 then return { 'ended', '' } end
    end
    return { 'unknown', '' }
  end
  local where = place(rec)
  for _, line in ipairs(redis.call('LRANGE', call.prefix .. 'log:' .. KEY, 0, -1)) do tell('log', line) end
  return { where, rec, unpack(call.told) }
end
