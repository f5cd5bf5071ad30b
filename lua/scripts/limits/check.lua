-- check asks for tokens without a job: all questions of a call are granted and charged, or nothing is.
-- KEYS[1] state  hash; the partition's other keys share its hash tag and are named after it
-- ARGV[1] now  microseconds, "" for Redis TIME
-- ARGV[2] version  of the policy that the caller's limits come from
-- ARGV[3] peek  "1" to charge nothing
-- ARGV[4] questions  packed, as the fragment path says
-- ARGV[5] ...  paths
-- Reply {"stale", version, ...} as fragments/path.lua says or {"granted" | "refused", the buckets' time and the tokens refunded so far, a line a
--   question}: micro-tokens left of global, tenant, queue and
--   priority, "-" where there is no bucket, after what was charged; where a part of the global limit is kept from it "others" and the same of
--   those from whom it is; then nothing where there is enough, else "limited
--   LEVEL LEFT WAIT_US BURST", "costly LEVEL BURST" or "buckets LEVEL", as admit says it; then, for each path whose queue is measured,
--   "LEVEL SCORE HINT_US"
-- Never writes when it refuses or peeks, but for buckets of dimensions that are full and go.
function scripts.check(KEYS, ARGV)
  local STATE, NOW, VERSION, PEEK, QUESTIONS = KEYS[1], ARGV[1], ARGV[2], ARGV[3], ARGV[4]
  call.buckets, call.global_bucket = 'b:', 'gb'
  local time_us = now_us(NOW)

  paths_read(5)
  clock_begin(time_us, { 'pv', 'gb', 'gm' })
  local stale = stale_reply(VERSION)
  if stale then return stale end
  buckets_read()

  local before = { unpack(bucket_levels, 1, call.rows) }
  local refusals, refused = {}, false
  for at = 1, #QUESTIONS, QUESTION_SIZE do
    local path, cost = question_at(QUESTIONS, at)
    local refusal = decide(path, cost)
    if refusal then
      refused = true
    else
      charge(path, cost)
      usage_note(path, time_us, 0, 1, cost / 1000000, 0, 0)
    end
    refusals[#refusals + 1] = refusal or ''
  end
  local granted = not refused and PEEK ~= '1'
  local lines = {}
  for i, refusal in ipairs(refusals) do
    local path, line = question_at(QUESTIONS, (i - 1) * QUESTION_SIZE + 1), {}
    for level = 0, 3 do
      local b = path[level]
      line[#line + 1] = b and format('%d', granted and bucket_levels[b] or before[b]) or '-'
    end
    local b = path[OTHERS]
    line[#line + 1] = b and format('others %d %s', granted and bucket_levels[b] or before[b], refusal) or refusal
    lines[i] = table.concat(line, ' ')
  end
  if granted then
    buckets_write(time_us)
    usage_write(time_us)
    state_write()
  elseif PEEK ~= '1' then
    clock_keep()
  end
  return pressures_told({ refused and 'refused' or 'granted', format('%d %d', call.filled_to, state_num('rf')), unpack(lines) }, time_us)
end
