-- policy stores a new version of the policy: its text, the settings of queues, the weights of tenants, caps and rates. It
-- keeps the last versions and an entry in the audit of who stored each, or only tells whether it would be stored.
-- KEYS[1] state  hash; the partition's other keys share its hash tag and are named after it
-- ARGV[1] now  microseconds, "" for Redis TIME
-- ARGV[2] expected  version that is in force
-- ARGV[3] version  of the new one
-- ARGV[4] text  JSON
-- ARGV[5] window  microseconds that ended ids are kept
-- ARGV[6] queues  number of Q
-- ARGV[7] bounds  number of B
-- ARGV[8] caps  number of C
-- ARGV[9] parked  number of K
-- ARGV[10] edit  names this edit among all, so that one that is sent again is known; "-" stores nothing
-- ARGV[11] author  who stores it
-- ARGV[12] reason  why
-- ARGV[13] restored  version whose document it has, "" for a new one
-- ARGV[14] changes  JSON, for the audit
-- ARGV[15] copy  what other partitions are to store, "" where there are none or they are the ones
-- ARGV[16] ...  Q times queue, setting; B times tenant:queue, overflow; C times gate, limit or rate|burst, with /partitions
--   where all divide the limit or rate (the burst is this one's part); K times downstream (empty for every other), how many
--   jobs may wait while its breaker is not closed; then class:tenant, weight (an empty tenant is everybody else)
-- Reply {"stored" | "more" | "fine"} or {"conflict", version in force} or {"classes", queue}: jobs wait in a class that
--   would go; "fine" is for the edit "-"
-- Never takes away what a job has: a new weight counts from a tenant's next dispatch, a lower cap too.
-- luacheck: ignore 211
local STATE, NOW, EXPECTED, VERSION, TEXT, WINDOW = KEYS[1], ARGV[1], ARGV[2], ARGV[3], ARGV[4], tonumber(ARGV[5])
local QUEUES, BOUND_COUNT, CAPS, PARKED = tonumber(ARGV[6]), tonumber(ARGV[7]), tonumber(ARGV[8]), tonumber(ARGV[9])
local EDIT, AUTHOR, REASON, RESTORED, CHANGES, COPY = ARGV[10], ARGV[11], ARGV[12], ARGV[13], ARGV[14], ARGV[15]
local QUEUES_AT = 16
-- @include audit
-- @include call
-- @include freed
-- @include gateset
-- @include held
-- @include paused
-- @include share
-- @include versions
local now = now_us(NOW)

-- rate_want makes a rate what the policy says, or takes it away. Tokens that are there stay, up to the new burst.
local function rate_want(name, text)
  local g = gate(name)
  if not text then return gate_remove(name) end
  local rate, burst = match(text, '^([^|]+)|(%d+)$')
  if not g then
    gate_count(name, 1)
    g = bucket_settle({ rate = tonumber(rate), burst = tonumber(burst) }, false, 0, state_num('bt'))
    gates[name] = g
  end
  g.rate, g.burst = tonumber(rate), tonumber(burst)
  g.level, g.stamp = math.min(g.level, g.burst), state_num('bt')
end

-- cap_want makes a cap what the policy says, or takes it away. A pause goes on. known says that what passed before was
-- counted.
local function cap_want(name, limit, known, counts)
  local g = gate(name)
  if g and not g.default and g.limit == 0 then
    paused_then(g, limit or '')
  elseif not limit then
    gate_remove(name)
  elseif not g or g.default then
    gate_count(name, 1)
    gates[name] = { limit = tonumber(limit), held = g and known and g.held or counts()[name] or 0, rest = '0||' }
  else
    g.limit, g.rest = tonumber(limit), '0||'
  end
end

-- share_want notes what the policy says of a bound that all partitions divide, and returns what is left of it for this one.
local function share_want(name, text)
  local whole, burst, parts = match(text or '', '^([^|]+)(.*)/(%d+)$')
  local s = share_read(name)
  if not whole then
    if s then
      s.whole = ''
      share_write(name, s)
    end
    return text
  end
  parts = tonumber(parts)
  if not s or s.parts ~= parts then s = { units = 1, of = parts, parts = parts } end
  s.whole = whole
  share_write(name, s)
  if burst ~= '' then return format('%.17g', share_rate(s)) .. burst end
  -- Other partitions may still run what they had of an older cap: only who has looked at all raises what is in force (balance.go).
  local before = share_in_force(gate(name))
  return format('%d', math.min(share_cap(s), before or share_cap(s)))
end

-- caps_apply makes all gates of caps and rates what the policy says: first those of all that have none of their own.
local function caps_apply(at)
  local wanted, names, covered = {}, {}, {}
  for i = at, at + 2 * CAPS - 1, 2 do wanted[ARGV[i]] = ARGV[i + 1] end
  local stored = redis.call('HKEYS', GATES)
  for _, name in ipairs(stored) do
    if byte(name) ~= 98 then wanted[name] = wanted[name] or false end
  end
  for name, text in pairs(wanted) do
    wanted[name], names[#names + 1] = share_want(name, text), name
  end
  table.sort(names, function(a, b)
    local first, second = match(a, ':%*') ~= nil, match(b, ':%*') ~= nil
    if first ~= second then return first end
    return a < b
  end)
  local counted
  local function counts()
    counted = counted or entries_count()
    return counted
  end
  for _, name in ipairs(names) do
    if gate_is_rate(name) then
      rate_want(name, wanted[name])
    else
      if wanted[name] and gate_default(name) == name and not gate(name) then covered[name] = true end
      cap_want(name, wanted[name], not covered[gate_default(name)], counts)
    end
    gates_dirty[name], freed[name] = true, true
  end
  if next(covered) then
    for name, n in pairs(counts()) do
      local default = gate_default(name)
      if covered[default] and (not gate(name) or gate(name).default) then
        gates[name] = { limit = gate(default).limit, held = n, default = true }
        gates_dirty[name] = true
      end
    end
  end
end

-- A function of its own: Lua in Go has room for fewer local variables at a time.
return (function()
call_begin(now, { 'pv', 'pe', 'pools' })
local current = state_get('pv') or '0'
if current == VERSION and state_get('pe') == EDIT and redis.call('GET', P .. 'policy') == TEXT then return { 'stored' } end
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
if EDIT == '-' then return { 'fine' } end
redis.call('DEL', P .. 'relief')
version_keep(current, VERSION, TEXT)
audit_add({
  'at', format('%d', now), 'from', current, 'to', VERSION, 'author', AUTHOR, 'reason', REASON, 'restored', RESTORED,
  'changes', CHANGES,
})
redis.call('SET', P .. 'policy', TEXT)
if COPY ~= '' then redis.call('SET', P .. 'copy', COPY) end
if #configured > 0 then redis.call('HDEL', STATE, unpack(configured)) end
queues = {}
for _, field in ipairs(configured) do st[field] = false end
for name, setting in pairs(settings) do
  redis.call('HSET', STATE, 'cfg:' .. name, setting)
  st['cfg:' .. name] = setting
  if redis.call('EXISTS', P .. 'dead:' .. name) == 1 then due_add(DUE, now, 'r' .. name) end
end
redis.call('UNLINK', P .. 'weights', P .. 'bounds', P .. 'maxparked')
local at, weights = QUEUES_AT + 2 * QUEUES, 0
for i = at, at + 2 * BOUND_COUNT - 1, 2 do redis.call('HSET', P .. 'bounds', ARGV[i], ARGV[i + 1]) end
at = at + 2 * BOUND_COUNT
caps_apply(at)
at = at + 2 * CAPS
for i = at, at + 2 * PARKED - 1, 2 do redis.call('HSET', P .. 'maxparked', ARGV[i], ARGV[i + 1]) end
for i = at + 2 * PARKED, #ARGV, 2 do
  redis.call('HSET', P .. 'weights', ARGV[i], ARGV[i + 1])
  weights = weights + 1
end
state_set('pv', VERSION)
state_set('pe', EDIT)
state_set('pat', state_num('bt'))
state_set('dw', WINDOW)
state_set('nw', weights)
state_set('nb', BOUND_COUNT)
state_set('nk', PARKED)
freed_wake(now)
return { fill(now) and 'more' or 'stored' }
end)()
