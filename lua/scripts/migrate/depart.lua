-- depart takes jobs away that another partition has by now (headgate migrate).
-- KEYS[1] state  hash; the partition's other keys share its hash tag and are named after it
-- ARGV[1] now  microseconds, "" for Redis TIME
-- ARGV[2] ...  keys of jobs, none of which is in a ready stream
-- Reply {"departed"}
-- Never ends a job: no counter of leaving changes, and its id is not remembered as one that has ended. Payloads, histories and
--   unique keys under keys of their own stay.
-- @flag allow-oom
-- @relief
local function lane_leave(key, rec)
  local tenant, id = key_split(key)
  local r = record_read(rec)
  local cl = class_open(queue_open(r.queue), r.class + 1)
  if redis.call('ZREM', lane_key(cl, tenant, r.lane), r.order .. id) == 0 then return end
  waiting_add(cl, r.lane, -1)
  old_remove(key, rec)
  lane_shrunk(cl, tenant, r.lane)
end

function scripts.depart(KEYS, ARGV)
  local STATE, NOW, KEYS_AT = KEYS[1], ARGV[1], 2
  local now = now_us(NOW)

  call_begin(now, {})
  for i = KEYS_AT, #ARGV do
    local key = ARGV[i]
    local rec = redis.call('HGET', keys.jobs, key)
    if rec then
      if redis.call('ZSCORE', keys.dead, key) then
        letter_remove(key, rec)
      elseif redis.call('ZREM', keys.later, key) == 0 and not spill_remove(depth_name(key, rec), key, rec) then
        lane_leave(key, rec)
      end
      depth_leave(key, rec)
      redis.call('HDEL', keys.ukeys, key)
      redis.call('HDEL', keys.jobs, key)
      state_add('accepted', -1)
    end
  end
  call.depth_freed = {} -- What is spilled there departs too.
  fill(now)
  return { 'departed' }
end
