-- reserve takes the tokens of one question under an id, until refund is told what the work has cost. The same id again is answered as it was.
-- KEYS[1] state  hash; the partition's other keys share its hash tag and are named after it
-- ARGV[1] now  microseconds, "" for Redis TIME
-- ARGV[2] version  of the policy that the caller's limits come from
-- ARGV[3] bucket_cap  largest number of buckets of a tenant
-- ARGV[4] global_rate  tokens a second, "" for no bucket
-- ARGV[5] global_burst  micro-tokens
-- ARGV[6] id  TENANT:ID, of no tenant :ID
-- ARGV[7] kept  microseconds that the id is remembered
-- ARGV[8] ref  what refund is to be called with as the id of the work
-- ARGV[9] cost  tokens
-- ARGV[10] scope  of the question
-- ARGV[11] ...  what the fragment path says of one path
-- Reply {"stale", version}, {"refused", a line as check says it} or {"reserved" | "again", what is kept}: version, the buckets' time and the
--   tokens refunded so far, cost, micro-tokens left of global, tenant, queue and priority, "-" where there is no bucket, ref and scope
-- Never takes tokens twice for an id, nor writes when it refuses.
-- levels_told is what the buckets on a way hold.
local function levels_told(path)
  local levels = {}
  for level = 0, 3 do levels[level + 1] = path[level] and format('%d', path[level].level) or '-' end
  return table.concat(levels, ' ')
end

function scripts.reserve(KEYS, ARGV)
  local STATE, NOW, VERSION = KEYS[1], ARGV[1], ARGV[2]
  local ID, KEPT, REF, COST, SCOPE = ARGV[6], tonumber(ARGV[7]), ARGV[8], tonumber(ARGV[9]), ARGV[10]
  call.bucket_cap, call.global_rate, call.global_burst = tonumber(ARGV[3]), tonumber(ARGV[4]), tonumber(ARGV[5])
  call.path_count, call.paths_at = 1, 11
  call.buckets, call.global_bucket = 'b:', 'gb'
  local time_us = now_us(NOW)

  clock_begin(time_us, { 'pv', 'gb', 'gm' })
  local key = call.prefix .. 'reserved:' .. ID
  local known = redis.call('GET', key)
  if known then return { 'again', known } end
  if (state_get('pv') or '0') ~= VERSION then return { 'stale', state_get('pv') or '0' } end
  paths_read()
  buckets_read()
  local path = call.paths[1]
  local refusal = decide(path, COST * 1000000)
  if refusal then return { 'refused', levels_told(path) .. ' ' .. refusal } end
  charge(path, COST * 1000000)
  local line = format('%s %d %d %d %s %s %s', VERSION, call.filled_to, state_num('rf'), COST, levels_told(path), REF, SCOPE)
  redis.call('SET', key, line, 'PX', math.ceil(KEPT / 1000))
  buckets_write(time_us)
  state_write()
  return { 'reserved', line }
end
