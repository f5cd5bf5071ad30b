-- policy stores a new version of the policy: its text, the settings of queues, the weights of tenants.
-- KEYS[1] state  hash; the partition's other keys share its hash tag and are named after it
-- ARGV[1] now  microseconds, "" for Redis TIME
-- ARGV[2] expected  version that is in force
-- ARGV[3] version  of the new one
-- ARGV[4] text  JSON
-- ARGV[5] window  microseconds that ended ids are kept
-- ARGV[6] queues  number of Q
-- ARGV[7] bounds  number of B
-- ARGV[8] ...  Q times queue, setting; B times tenant:queue, overflow; then class:tenant, weight (an empty tenant is
--   everybody else)
-- Reply {"stored"} or {"conflict", version in force} or {"classes", queue}: jobs wait in a class that would go
-- Never moves a job: a new weight counts from a tenant's next dispatch.
-- luacheck: ignore 211
local STATE, NOW, EXPECTED, VERSION, TEXT, WINDOW = KEYS[1], ARGV[1], ARGV[2], ARGV[3], ARGV[4], tonumber(ARGV[5])
local QUEUES, BOUND_COUNT, QUEUES_AT = tonumber(ARGV[6]), tonumber(ARGV[7]), 8
-- @include time
-- @include queue
-- @include due
local now = now_us(NOW)

state_load({ 't', 'bt', 'dc', 'step', 'pv' })
clock_advance(now)
local current = state_get('pv') or '0'
if current == VERSION and redis.call('GET', P .. 'policy') == TEXT then return { 'stored' } end
if current ~= EXPECTED then return { 'conflict', current } end
local settings = {}
for i = 0, QUEUES - 1 do settings[ARGV[QUEUES_AT + 2 * i]] = ARGV[QUEUES_AT + 2 * i + 1] end
local old = redis.call('HGETALL', STATE)
local configured = {}
for i = 1, #old, 2 do
  local name = match(old[i], '^q:(.*)$')
  if name then
    local before, after = queue_open(name), { name = name }
    queue_config(after, settings[name] or DEFAULT_QUEUE)
    for c = 1, before.n do
      if before.waiting[c] > 0 and before.names[c] ~= after.names[c] then return { 'classes', name } end
    end
  end
  name = match(old[i], '^cfg:(.*)$')
  if name then configured[#configured + 1] = 'cfg:' .. name end
end
redis.call('DEL', P .. 'relief')
redis.call('SET', P .. 'policy', TEXT)
if #configured > 0 then redis.call('HDEL', STATE, unpack(configured)) end
for name, setting in pairs(settings) do
  redis.call('HSET', STATE, 'cfg:' .. name, setting)
  if redis.call('EXISTS', P .. 'dead:' .. name) == 1 then due_add(DUE, now, 'r' .. name) end
end
redis.call('UNLINK', P .. 'weights')
local count = 0
local BOUNDS_AT = QUEUES_AT + 2 * QUEUES
redis.call('UNLINK', P .. 'bounds')
for i = BOUNDS_AT, BOUNDS_AT + 2 * BOUND_COUNT - 1, 2 do redis.call('HSET', P .. 'bounds', ARGV[i], ARGV[i + 1]) end
for i = BOUNDS_AT + 2 * BOUND_COUNT, #ARGV, 2 do
  redis.call('HSET', P .. 'weights', ARGV[i], ARGV[i + 1])
  count = count + 1
end
state_set('pv', VERSION)
state_set('pat', state_num('bt'))
state_set('dw', WINDOW)
state_set('nw', count)
state_set('nb', BOUND_COUNT)
state_write()
return { 'stored' }
