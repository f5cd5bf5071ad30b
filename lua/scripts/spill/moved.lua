-- moved lets go of the bodies of spilled jobs that the second Redis has by now: a stub stays.
-- KEYS[1] state  hash; the partition's other keys share its hash tag and are named after it
-- ARGV[1] now  microseconds, "" for Redis TIME
-- ARGV[2] number  of the mover
-- ARGV[3] ...  names of copies
-- Reply {"moved", how many}, or {"stale"}: somebody else moves them now, and nothing was done
-- Never lets go of a job that has left its place meanwhile: its copy there stays one that is to be dropped.
-- @flag allow-oom
-- @relief
function scripts.moved(KEYS, ARGV)
  local STATE, NOW, NUMBER, NAMES_AT = KEYS[1], ARGV[1], ARGV[2], 3
  local now = now_us(NOW)

  call_begin(now, { 'mover' })
  if not mover_is(NUMBER) then return { 'stale' } end
  local moved = 0
  for i = NAMES_AT, #ARGV do
    local key, rec = copy_job(ARGV[i])
    local name = rec and depth_name(key, rec)
    if rec and not record_far(rec) and redis.call('ZSCORE', call.prefix .. 'spill:' .. name, key) then
      redis.call('HSET', keys.jobs, key, record_stub(rec))
      redis.call('UNLINK', call.prefix .. 'large:' .. key)
      redis.call('ZADD', call.prefix .. 'far:' .. name, format('%d', number_at(rec, 7)), key)
      redis.call('SREM', keys.copies, ARGV[i])
      moved = moved + 1
    end
  end
  state_add('nf', moved)
  state_write()
  return { 'moved', format('%d', moved) }
end
