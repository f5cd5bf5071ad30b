-- reserve takes the tokens of one question under an id, until refund is told what the work has cost. The same id again is answered as it was.
-- KEYS[1] state  hash; the partition's other keys share its hash tag and are named after it
-- ARGV[1] now  microseconds, "" for Redis TIME
-- ARGV[2] version  of the policy that the caller's limits come from
-- ARGV[3] id  TENANT:ID, of no tenant :ID
-- ARGV[4] kept  microseconds that the id is remembered
-- ARGV[5] ref  what refund is to be called with as the id of the work
-- ARGV[6] cost  tokens
-- ARGV[7] scope  of the question
-- ARGV[8] ...  one path
-- Reply {"stale", version, ...} as fragments/path.lua says, {"refused", a line as check says it} or {"reserved" | "again", what is kept}: version, the buckets' time and the
--   tokens refunded so far, cost, micro-tokens left of global, tenant, queue and priority, "-" where there is no bucket, ref, "u" where its usage is kept
--   and "-" elsewhere, and scope
-- Never takes tokens twice for an id, nor writes when it refuses.
-- levels_told is what the buckets on a way hold.
local function levels_told(path)
  local levels = {}
  for level = 0, 3 do levels[level + 1] = path[level] and format('%d', bucket_levels[path[level]]) or '-' end
  return table.concat(levels, ' ')
end

function scripts.reserve(KEYS, ARGV)
  local STATE, NOW, VERSION = KEYS[1], ARGV[1], ARGV[2]
  local ID, KEPT, REF, COST, SCOPE = ARGV[3], tonumber(ARGV[4]), ARGV[5], tonumber(ARGV[6]), ARGV[7]
  call.buckets, call.global_bucket = 'b:', 'gb'
  local time_us = now_us(NOW)

  clock_begin(time_us, { 'pv', 'gb', 'gm' })
  local key = call.prefix .. 'reserved:' .. ID
  local known = redis.call('GET', key)
  if known then return { 'again', known } end
  paths_read(8)
  local stale = stale_reply(VERSION)
  if stale then return stale end
  buckets_read()
  local path = call.paths[1]
  local refusal = decide(path, COST * 1000000)
  if refusal then return { 'refused', levels_told(path) .. ' ' .. refusal } end
  charge(path, COST * 1000000)
  local line = format('%s %d %d %d %s %s %s %s', VERSION, call.filled_to, state_num('rf'), COST, levels_told(path), REF, path.kept and 'u' or '-', SCOPE)
  redis.call('SET', key, line, 'PX', math.ceil(KEPT / 1000))
  buckets_write(time_us)
  usage_note(path, time_us, 0, 1, COST, 0, 0)
  usage_write(time_us)
  state_write()
  return { 'reserved', line }
end
