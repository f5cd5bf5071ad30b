-- shadow asks the limits of a candidate what they would have answered, from buckets of their own, and counts the answers.
-- KEYS[1] state  hash; the partition's other keys share its hash tag and are named after it
-- ARGV[1] now  microseconds, "" for Redis TIME
-- ARGV[2] version  of the policy that has the candidate
-- ARGV[3] id  of the candidate; the counts of another begin anew
-- ARGV[4] questions  packed, as the fragment path says
-- ARGV[5] ...  paths
-- Reply {"stale", version, ...} as fragments/path.lua says or {"counted"}
-- Never touches the buckets in force.
function scripts.shadow(KEYS, ARGV)
  local STATE, NOW, VERSION, ID, QUESTIONS = KEYS[1], ARGV[1], ARGV[2], ARGV[3], ARGV[4]
  call.buckets, call.global_bucket = 'x:' .. ID .. ':', 'xgb'
  local time_us = now_us(NOW)

  paths_read(5)
  clock_begin(time_us, { 'pv', 'xgb', 'gm' })
  local stale = stale_reply(VERSION)
  if stale then return stale end
  local COUNTS = keys.shadow
  local begins = redis.call('HGET', COUNTS, 'id') ~= ID
  if begins then
    state_set('xgb', false)
    if call.others then state_set('xgbo', false) end
  end
  buckets_read()
  local counts = {}
  for at = 1, #QUESTIONS, QUESTION_SIZE do
    local path, cost = question_at(QUESTIONS, at)
    local refusal = decide(path, cost)
    local field = refusal and 'refused:' .. match(refusal, ' (%d)') or 'allowed'
    if not refusal then charge(path, cost) end
    counts[field] = (counts[field] or 0) + 1
  end
  if begins then
    redis.call('UNLINK', COUNTS)
    redis.call('HSET', COUNTS, 'id', ID, 'since', format('%d', time_us))
  end
  for field, n in pairs(counts) do redis.call('HINCRBY', COUNTS, field, n) end
  buckets_write(time_us)
  state_write()
  return { 'counted' }
end
