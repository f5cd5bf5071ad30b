-- reclaim takes back what a worker holds and ends its registration: the last step of a drain.
-- KEYS[1] state  hash; the partition's other keys share its hash tag and are named after it
-- ARGV[1] now  microseconds, "" for Redis TIME
-- ARGV[2] worker  name
-- Reply {"reclaimed"} or {"more"}: call again
-- Never deletes a consumer that still holds entries.
-- @flag allow-oom
-- @relief
function scripts.reclaim(KEYS, ARGV)
  local STATE, NOW, WORKER = KEYS[1], ARGV[1], ARGV[2]
  local now = now_us(NOW)

  call_begin(now, {})
  local done = worker_reclaim(WORKER, false, now)
  freed_wake(now)
  local continues = fill(now)
  return { done and not continues and 'reclaimed' or 'more' }
end
