-- refund has the buckets of all its ways hold what work has cost in place of what check took for it, nothing where it never began, once for each id; or, of work
-- that goes on, what it has used so far where that is more.
-- KEYS[1] state  hash; the partition's other keys share its hash tag and are named after it
-- ARGV[1] now  microseconds, "" for Redis TIME
-- ARGV[2] version  of the policy under which the tokens were taken
-- ARGV[3] id  of the work
-- ARGV[4] window  of the taking: microseconds from it, or from the latest part, for which a refund may come and its id is remembered
-- ARGV[5] taken_at  the buckets' time at which the tokens were taken
-- ARGV[6] refunds  tokens that had been refunded until then, in all
-- ARGV[7] reserved  tokens that were taken
-- ARGV[8] cost  tokens in truth, 0 for work that never began
-- ARGV[9] left  micro-tokens that the taking left in the global bucket, 0 where there is none
-- ARGV[10] left_tenant  the same of the tenant's
-- ARGV[11] left_queue  of the queue's
-- ARGV[12] left_priority  of the priority's
-- ARGV[13] ...  paths, the first that of what is left above, others of dimensions; then, where any is of one, of each '<Bd': 1 where the taking has charged the bucket
--   that values without room share, else 0, and micro-tokens that it left there; then, of a part alone, the id under which reserve took the tokens, "" for none, which is remembered for two windows more
-- Reply {"refunded"}, {"again"} where the id had been refunded, {"late"} after the window where nothing is known of it, {"stale", version} and what fragments/path.lua adds under another policy or record
-- Never leaves more in a bucket than it would hold had the cost been taken at first, nor less than one burst below zero. What a part has
--   told is never told less: neither the next nor the whole counts for less.
local BESIDE, BESIDE_SIZE = '<Bd', 9

-- settle_all has the buckets of all paths hold what the work has cost. Where limits are others since a taking, nothing goes back: the buckets may have been others.
local function settle_all(beside, taken_at, reserved, cost, left, refunds)
  local settled = false
  for i = 1, call.path_count do
    local path = call.paths[i]
    if path.beside then
      local of_others, of = struct_unpack(BESIDE, beside, (i - 1) * BESIDE_SIZE + 1)
      dimension_taken(path, of_others == 1)
      left = { of, of }
    end
    if cost >= reserved or taken_at >= path_changed(path) then
      path_settle(path, reserved, cost, call.filled_to - taken_at, left, refunds)
      settled = true
    end
  end
  if settled and cost < reserved then state_add('rf', reserved - cost) end
end

function scripts.refund(KEYS, ARGV)
  local STATE, NOW, VERSION = KEYS[1], ARGV[1], ARGV[2]
  local ID, WINDOW, TAKEN_AT, REFUNDS = ARGV[3], tonumber(ARGV[4]), tonumber(ARGV[5]), tonumber(ARGV[6])
  local RESERVED, COST = tonumber(ARGV[7]), tonumber(ARGV[8])
  local LEFT = { [0] = tonumber(ARGV[9]), tonumber(ARGV[10]), tonumber(ARGV[11]), tonumber(ARGV[12]) }
  call.buckets, call.global_bucket = 'b:', 'gb'
  local time_us = now_us(NOW)

  local after, path = paths_read(13), call.paths[1]
  local beside = call.paths[call.path_count].beside and ARGV[after]
  local UNDER = ARGV[beside and after + 1 or after]
  clock_begin(time_us, { 'pv', 'gb', 'gm' })
  local stale = stale_reply(VERSION)
  if stale then return stale end
  buckets_read()
  local elapsed = call.filled_to - TAKEN_AT
  local key, kept_ms = call.prefix .. 'refund:' .. ID, math.ceil(WINDOW / 1000)
  local told
  if UNDER or elapsed > WINDOW then
    told = redis.call('GET', key)
    if not told and elapsed > WINDOW then return { 'late' } end
  else
    told = redis.call('SET', key, '', 'PX', kept_ms, 'NX', 'GET')
  end
  if told == '' then return { 'again' } end
  local so_far = told and tonumber(told) or 0
  COST, RESERVED = math.max(COST, so_far), math.max(RESERVED, so_far)
  if UNDER or told then redis.call('SET', key, UNDER and format('%d', COST) or '', 'PX', kept_ms) end
  if UNDER then
    if UNDER ~= '' then redis.call('PEXPIRE', call.prefix .. 'reserved:' .. UNDER, 2 * kept_ms) end
    COST = math.max(COST, RESERVED) -- What it has not used yet stays reserved.
  end

  settle_all(beside, TAKEN_AT, RESERVED, COST, LEFT, (state_num('rf') - REFUNDS) * 1000000)
  buckets_write(time_us)
  usage_note(path, time_us - elapsed, 0, 0, 0, math.max(0, RESERVED - COST), math.max(0, COST - RESERVED))
  usage_write(time_us)
  state_write()
  return { 'refunded' }
end
