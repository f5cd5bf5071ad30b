-- purge ends dead letters for good.
-- KEYS[1] state  hash; the partition's other keys share its hash tag and are named after it
-- ARGV[1] now  microseconds, "" for Redis TIME
-- ARGV[2] ...  keys of jobs
-- Reply {"purged", a word a job}: purged, or unknown where it is no dead letter
-- Never touches a job that may still run.
-- luacheck: ignore 211
local STATE, NOW = KEYS[1], ARGV[1]
-- @include call
-- @include letter
-- @include relief
local now = now_us(NOW)

call_begin(now, {})
local words = {}
for i = 2, #ARGV do
  local dead = redis.call('ZSCORE', DEAD, ARGV[i])
  if dead then letter_end(ARGV[i], 'purged') end
  words[#words + 1] = dead and 'purged' or 'unknown'
end
leave_write()
state_write()
return { 'purged', unpack(words) }
