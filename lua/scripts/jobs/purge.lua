-- purge ends dead letters for good.
-- KEYS[1] state  hash; the partition's other keys share its hash tag and are named after it
-- ARGV[1] now  microseconds, "" for Redis TIME
-- ARGV[2] by  who does it and why, as fragments/audit.lua reads it
-- ARGV[3] ...  keys of jobs
-- Reply {"purged", a word a job}: purged, or unknown where it is no dead letter
-- Never touches a job that may still run.
-- @flag allow-oom
-- @relief
function scripts.purge(KEYS, ARGV)
  local STATE, NOW, BY, KEYS_AT = KEYS[1], ARGV[1], ARGV[2], 3
  local now = now_us(NOW)

  call_begin(now, {})
  local words, purged = {}, {}
  for i = KEYS_AT, #ARGV do
    local dead = redis.call('ZSCORE', keys.dead, ARGV[i])
    if dead then
      local queue = letter_end(ARGV[i], 'purged')
      if queue then purged[queue] = (purged[queue] or 0) + 1 end
    end
    words[#words + 1] = dead and 'purged' or 'unknown'
  end
  local by = by_read(BY)
  for queue, n in pairs(purged) do audit_act(now, by, 'q:' .. queue, n) end
  leave_write()
  state_write()
  return { 'purged', unpack(words) }
end
