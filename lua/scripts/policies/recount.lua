-- recount brings jobs that entered before their tenant and queue had a bound into its depth, a page a call.
-- KEYS[1] state  hash; the partition's other keys share its hash tag and are named after it
-- ARGV[1] now  microseconds, "" for Redis TIME
-- ARGV[2] cursor  "0" at first, then what the last call replied
-- ARGV[3] page  jobs to look at, about
-- ARGV[4] edit  of the policy whose bounds are counted
-- Reply {cursor}, "0" at the end
-- Never counts a job twice: its record says that it counts.
-- @flag allow-oom
-- @relief
function scripts.recount(KEYS, ARGV)
  local STATE, NOW, CURSOR, PAGE, EDIT = KEYS[1], ARGV[1], ARGV[2], ARGV[3], ARGV[4]
  local now = now_us(NOW)

  call_begin(now, { 'pr' })
  local found = redis.call('HSCAN', keys.jobs, CURSOR, 'COUNT', PAGE)
  for i = 1, #found[2], 2 do
    local key, rec = found[2][i], found[2][i + 1]
    local tenant, id = key_split(key)
    local r = record_read(rec)
    if (bound_open(tenant, r.queue) or total_bound(tenant)) and not record_has(rec, COUNTED) and not redis.call('ZSCORE', keys.dead, key)
      and not redis.call('ZSCORE', call.prefix .. 'spill:' .. tenant .. ':' .. r.queue, key) then
      rec = record_flagged(rec, COUNTED)
      redis.call('HSET', keys.jobs, key, rec)
      depth_add(tenant .. ':' .. r.queue, 1, job_size(key, rec))
      local lane = call.prefix .. 'lane:' .. r.class .. ':' .. r.queue .. ':' .. tenant .. ':' .. r.lane
      if redis.call('ZSCORE', lane, r.order .. id) then old_add(key, rec) end
    end
  end
  if found[1] == '0' and state_get('pr') == EDIT then state_set('pr', false) end
  depth_write()
  state_write()
  return { found[1] }
end
