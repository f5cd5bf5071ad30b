-- share tells what this partition has and uses of bounds that all partitions divide among them, and sets its share of some.
-- KEYS[1] state  hash; the partition's other keys share its hash tag and are named after it
-- ARGV[1] now  microseconds, "" for Redis TIME
-- ARGV[2] number  of the ballot
-- ARGV[3] owner  of the ballot
-- ARGV[4] parts  number of them
-- ARGV[5] ...  of each bound: gate, or "global"; units, "" to set nothing; of how many
-- Reply {"taken", number} where a ballot of a higher number, or of another owner, has been here: nothing is done; or {"shown" |
--   "more", a line a bound}: "-" where there is no such bound, else whole units of limit used, limit being what is in force,
--   and where more is wanted who wants it, as demand says it. Of a rate, whole is the number of its parts, and used 1 unless the
--   bucket is full. A whole of 0 is a bound that has gone from the policy.
-- Never takes away what a job has: those above a lower cap run on, and used says how many.
-- @flag allow-oom
-- @relief
-- RATE_PARTS is into how many units the even part of a rate is divided.
local RATE_PARTS = 1000

-- shared_set changes the rate of a bucket of the global limit: what has come in so far came at the old one. At which rate it came in after a
-- change of policy that no admission has followed is not known: such time does not count.
local function shared_set(field, multiple)
  local stored = state_get(field)
  local changed_at = select(2, scales_read(state_num('bt')))
  local stamp = stored and select(2, bucket_parse(stored))
  local at = state_num('bt')
  if stamp and changed_at > stamp then at = math.min(at, changed_at) end
  local level, missing, rate = global_level(at, field)
  if level then
    rate = rate * multiple / tonumber(state_get('gm') or 1)
    state_set(field, bucket_text(level, state_num('bt'), missing / rate, rate))
  elseif stored and not window_is(stored) then
    state_set(field, false)
  end
end

-- global_set changes the rate of the global limit here.
local function global_set(units, of)
  local multiple = units * call.parts / of
  for _, field in ipairs(GLOBALS) do shared_set(field, multiple) end
  state_set('gm', multiple)
end

-- share_freed lets waiters wake behind what has more: that of all that have none of their own lets those of each wake.
local function share_freed(name)
  call.freed[name] = true
  if gate_default(name) ~= name then return end
  for _, covered in ipairs(redis.call('HKEYS', keys.gates)) do
    if gate_default(covered) == name then call.freed[covered] = true end
  end
end

local function share_set(name, units, of)
  if name == 'global' then return global_set(units, of) end
  local s, g = share_read(name), gate(name)
  if not s then return end
  s.units, s.of = units, of
  share_write(name, s)
  if s.whole == '' or not g then return end
  if g.burst then
    g.rate, g.stamp = share_rate(s), state_num('bt')
  elseif g.limit == 0 then
    paused_then(g, format('%d', share_cap(s)))
  else
    g.limit = share_cap(s)
  end
  call.gates_dirty[name] = true
  share_freed(name)
end

local function rate_line(units, of, in_force, full, wanted)
  return format('%d %d %d %d %d %s', RATE_PARTS * call.parts, units, of, in_force, full and 0 or 1, wanted)
end

local function share_line(name)
  if name == 'global' then
    local units = floor(tonumber(state_get('gm') or 1) * RATE_PARTS + 0.5)
    return rate_line(units, RATE_PARTS * call.parts, units, not global_level(state_num('bt'), 'gb'), hunger(name))
  end
  local s, g = share_read(name), gate(name)
  if not s or s.parts ~= call.parts then return '-' end
  if s.whole == '' then return format('0 %d %d 0 0', s.units, s.of) end
  if not g or g.default then return '-' end
  if g.burst then
    local in_force = floor(g.rate / s.whole * RATE_PARTS * call.parts + 0.5)
    return rate_line(s.units, s.of, in_force, g.level >= g.burst, hunger(name))
  end
  return format('%s %d %d %d %d %s', s.whole, s.units, s.of, math.max(0, share_in_force(g) or 0), g.held, hunger(name))
end

function scripts.share(KEYS, ARGV)
  local STATE, NOW, NUMBER, OWNER = KEYS[1], ARGV[1], tonumber(ARGV[2]), ARGV[3]
  call.parts = tonumber(ARGV[4])
  local BOUNDS_AT = 5
  local now = now_us(NOW)


  call_begin(now, { 'pv', 'gb', 'gbo', 'gm', 'sb', 'pools' })
  local number, owner = match(state_get('sb') or '0||', '^(%d+)|([^|]*)|')
  number = tonumber(number)
  if number > NUMBER or number == NUMBER and owner ~= OWNER then return { 'taken', format('%d', number) } end
  state_set('sb', format('%d|%s|%d', NUMBER, OWNER, state_num('bt')))
  for at = BOUNDS_AT, #ARGV, 3 do
    if ARGV[at + 1] ~= '' then share_set(ARGV[at], tonumber(ARGV[at + 1]), tonumber(ARGV[at + 2])) end
  end
  freed_wake(now)
  local reply = { fill(now) and 'more' or 'shown' }
  for at = BOUNDS_AT, #ARGV, 3 do reply[#reply + 1] = share_line(ARGV[at]) end
  return reply
end
