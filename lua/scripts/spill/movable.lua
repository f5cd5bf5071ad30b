-- movable says what is to be moved between this Redis and the second one, and gives somebody the right to do it.
-- KEYS[1] state  hash; the partition's other keys share its hash tag and are named after it
-- ARGV[1] now  microseconds, "" for Redis TIME
-- ARGV[2] owner  the mover's name
-- ARGV[3] lease  microseconds
-- ARGV[4] fresh  "1" if what it did last is in doubt, which a new number makes void
-- ARGV[5] id  what the deployment is to be called in the second Redis, if it has no name there
-- ARGV[6] ready  "1" if the second Redis answers it; else nothing is chosen, and the right to move is for anybody
-- ARGV[7] trouble  why it moved nothing before, "" for none
-- ARGV[8] cursor  "0" at first, then what the last call replied
-- ARGV[9] ...  names of copies that are gone there by now
-- Reply {"held", microseconds until the other's lease ends}, or {"movable", number, id, jobs whose bodies are there, cursor, how many copies
--   are to be dropped, their names, how many bodies are to go there, of each name, record, and "1" if its payload is a key of its own,
--   how many are to come back, their names}
-- Never moves anything, nor chooses more than MOVES jobs, half of them to go there.
-- @flag allow-oom
-- @relief
local PORTION_BYTES, NAMES = 262144, 32

-- recalled_choose brings jobs back whose deadline has passed.
local function recalled_choose(back)
  for _, key in ipairs(redis.call('SRANDMEMBER', keys.recall, MOVES / 4)) do
    local rec = redis.call('HGET', keys.jobs, key)
    if rec and record_far(rec) then
      back[#back + 1] = copy_name(key, rec)
    else
      redis.call('SREM', keys.recall, key)
    end
  end
end

-- rank_of returns the place of a job among those that are spilled, from 0.
local function rank_of(spill, key)
  return redis.call('ZRANK', spill, key) or 0
end

-- back_choose brings the first of a name back: while fewer than a quarter of what may be spilled stand before the first whose body is
-- away, those in the first half.
local function back_choose(name, keep, back)
  local spill, far = call.prefix .. 'spill:' .. name, call.prefix .. 'far:' .. name
  local first = redis.call('ZRANGE', far, 0, 0)[1]
  if not first or rank_of(spill, first) >= keep / 2 then return end
  for _, key in ipairs(redis.call('ZRANGE', far, 0, MOVES / 2 - 1)) do
    if #back == MOVES / 2 or rank_of(spill, key) >= keep then return end
    local rec = redis.call('HGET', keys.jobs, key)
    if rec then back[#back + 1] = copy_name(key, rec) end
  end
end

-- out_choose lets jobs of a name go: those that come after the first half of what may be spilled, and after those whose bodies are away.
local function out_choose(name, b, keep, out)
  local spill, far = call.prefix .. 'spill:' .. name, call.prefix .. 'far:' .. name
  local away = far_count(name)
  local n = math.min(redis.call('ZCARD', spill) - away - keep, b.far - away, MOVES / 2 - #out)
  if n <= 0 then return end
  local last = redis.call('ZRANGE', far, -1, -1)[1]
  local at = math.max(keep, last and rank_of(spill, last) + 1 or 0)
  for _, key in ipairs(redis.call('ZRANGE', spill, at, at + n - 1)) do
    local rec = redis.call('HGET', keys.jobs, key)
    local size = rec and job_size(key, rec) or 0
    if call.bytes > 0 and call.bytes + size > PORTION_BYTES then return end
    if rec and not record_far(rec) then
      call.bytes = call.bytes + size
      redis.call('SADD', keys.copies, copy_name(key, rec))
      out[#out + 1] = { copy_name(key, rec), rec, record_has(rec, LARGE) and '1' or '' }
    end
  end
end

local function choose(cursor, out, back)
  recalled_choose(back)
  local found = redis.call('SSCAN', keys.spills, cursor, 'COUNT', NAMES)
  for _, name in ipairs(found[2]) do
    local tenant, queue = match(name, '^([^:]*):(.*)$')
    local b = bound_open(tenant, queue)
    local moves = b and b.policy == 'm'
    local keep = moves and floor(b.spill / 2) or math.huge -- Where nothing is to be there, all come back.
    back_choose(name, keep, back)
    if moves then out_choose(name, b, keep, out) end
  end
  return found[1]
end

function reset.movable() call.bytes = 0 end

function scripts.movable(KEYS, ARGV)
  local STATE, NOW, OWNER, LEASE, FRESH, ID = KEYS[1], ARGV[1], ARGV[2], tonumber(ARGV[3]), ARGV[4], ARGV[5]
  local READY, TROUBLE, CURSOR, GONE_AT = ARGV[6], ARGV[7], ARGV[8], 9
  local now = now_us(NOW)

  call_begin(now, { 'mover', 'mid', 'mbad' })
  local held_until, number, owner = match(state_get('mover') or '0|0|', '^(%d+)|(%d+)|(.*)$')
  held_until, number = tonumber(held_until), tonumber(number)
  if owner ~= OWNER and held_until >= now and held_until <= now + LEASE then return { 'held', format('%d', held_until - now + 1) } end
  if owner ~= OWNER or FRESH == '1' then
    number = number + 1
  else
    for i = GONE_AT, #ARGV do redis.call('SREM', keys.copies, ARGV[i]) end
  end
  state_set('mover', format('%d|%d|%s', READY == '1' and now + LEASE or now, number, OWNER)) -- Another may reach what this one does not.
  if not state_get('mid') then state_set('mid', ID) end
  if TROUBLE == '' then state_set('mok', now) end
  if (state_get('mbad') or '') ~= TROUBLE then state_set('mbad', TROUBLE ~= '' and TROUBLE or false) end

  local out, back, cursor = {}, {}, CURSOR
  local gone = READY == '1' and redis.call('SRANDMEMBER', keys.copies, MOVES) or {} -- before any of this call is among them
  if READY == '1' then cursor = choose(CURSOR, out, back) end
  local reply = { 'movable', format('%d', number), state_get('mid'), format('%d', state_num('nf')), cursor, format('%d', #gone) }
  for _, name in ipairs(gone) do reply[#reply + 1] = name end
  reply[#reply + 1] = format('%d', #out)
  for _, job in ipairs(out) do
    for i = 1, 3 do reply[#reply + 1] = job[i] end
  end
  reply[#reply + 1] = format('%d', #back)
  for _, name in ipairs(back) do reply[#reply + 1] = name end
  state_write()
  return reply
end
