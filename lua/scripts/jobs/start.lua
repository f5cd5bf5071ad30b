-- start notes that a worker's handler begins a suspect, a job whose delivery was lost before.
-- KEYS[1] state  hash; the partition's other keys share its hash tag and are named after it
-- ARGV[1] pool  id
-- ARGV[2] worker  name
-- ARGV[3] token  of the lease
-- ARGV[4] key  of the job
-- Reply {"started"}, {"lost"}, or {"beside"}: the worker runs a suspect that this one is not to run beside
-- Never notes what is no longer the worker's: nobody would take the note away. Never lets suspects run together that are not of one
-- group, see reclaim.lua.
-- @flag allow-oom
-- @relief
function scripts.start(KEYS, ARGV)
  local STATE, POOL, WORKER, TOKEN, KEY = KEYS[1], ARGV[1], ARGV[2], ARGV[3], ARGV[4]
  local ready = call.prefix .. 'ready:' .. POOL
  if redis.call('EXISTS', ready) == 0 then return { 'lost' } end
  if #redis.call('XPENDING', ready, GROUP, TOKEN, TOKEN, 1, WORKER) == 0 then return { 'lost' } end
  if redis.call('HGET', keys.started, KEY) == WORKER then return { 'started' } end
  local group = redis.call('HGET', keys.suspects, KEY) or ''
  local n, running = match(redis.call('HGET', keys.begun, WORKER) or '0|', '^(%d+)|(.*)$')
  if n ~= '0' and (group == '' or group ~= running) then return { 'beside' } end
  redis.call('HSET', keys.started, KEY, WORKER)
  redis.call('HSET', keys.begun, WORKER, format('%d|%s', n + 1, group))
  return { 'started' }
end
