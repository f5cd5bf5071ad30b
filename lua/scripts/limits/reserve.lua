-- reserve takes the tokens of one question, and of those of dimensions beside it, all or none, under an id, until refund is told what the work has cost. The same id again is answered as it was.
-- KEYS[1] state  hash; the partition's other keys share its hash tag and are named after it
-- ARGV[1] now  microseconds, "" for Redis TIME
-- ARGV[2] version  of the policy that the caller's limits come from
-- ARGV[3] id  TENANT:ID, of no tenant :ID
-- ARGV[4] kept  microseconds that the id is remembered
-- ARGV[5] ref  what refund is to be called with as the id of the work; where it may come for another time than a minute, a comma and its microseconds follow
-- ARGV[6] cost  tokens
-- ARGV[7] scope  of the question
-- ARGV[8] ...  paths, the first that of the scope, others of dimensions; then, where other partitions have taken of some, what is kept of these
-- Reply {"stale", version, ...} as fragments/path.lua says, {"refused", a line a path as check says it} or {"reserved" | "again", what is kept}: version, the buckets' time and the
--   tokens refunded so far, cost, micro-tokens left of global, tenant, queue and priority, "-" where there is no bucket, ref, "u" where its usage is kept
--   and "-" elsewhere, and scope; behind it of each way of a dimension two words, what the taking left in its bucket, with an s before it where values without room
--   share that, "-" where there is none, and its scope, and what is kept of those of other partitions
-- Never takes tokens twice for an id, nor writes when it refuses.
-- levels_told is what the buckets on a way hold.
local function levels_told(path)
  local levels = {}
  for level = 0, 3 do levels[level + 1] = path[level] and format('%d', bucket_levels[path[level]]) or '-' end
  return table.concat(levels, ' ')
end

-- beside_told is what is kept of a way of a dimension.
local function beside_told(path)
  local b = path[1] or path[2]
  return format('%s%s %s:%s', path[1] and 's' or '', b and format('%d', bucket_levels[b]) or '-', path.tenant, path.queue)
end

-- refusals_told returns what a call is answered of which one of the ways at least has too little, nil where all have enough.
local function refusals_told(cost)
  local reply, refused = { 'refused' }, false
  for i = 1, call.path_count do
    local refusal = decide(call.paths[i], cost)
    refused = refused or refusal
    reply[i + 1] = refusal or ''
  end
  if not refused then return end
  for i = 1, call.path_count do reply[i + 1] = levels_told(call.paths[i]) .. ' ' .. reply[i + 1] end
  return reply
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
  local elsewhere = ARGV[paths_read(8)]
  local stale = stale_reply(VERSION)
  if stale then return stale end
  buckets_read()
  local path = call.paths[1]
  local refused = refusals_told(COST * 1000000)
  if refused then
    clock_keep()
    return refused
  end
  for i = 1, call.path_count do charge(call.paths[i], COST * 1000000) end
  local line = format('%s %d %d %d %s %s %s %s', VERSION, call.filled_to, state_num('rf'), COST, levels_told(path), REF, path.kept and 'u' or '-', SCOPE)
  for i = 2, call.path_count do line = line .. ' ' .. beside_told(call.paths[i]) end
  if elsewhere then line = line .. ' ' .. elsewhere end
  redis.call('SET', key, line, 'PX', math.ceil(KEPT / 1000))
  buckets_write(time_us)
  usage_note(path, time_us, 0, 1, COST, 0, 0)
  usage_write(time_us)
  state_write()
  return { 'reserved', line }
end
