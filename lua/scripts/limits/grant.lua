-- grant asks for tokens of many callers, each all or nothing, and keeps the leases of a limiter that spends tokens itself.
-- KEYS[1] state  hash; the partition's other keys share its hash tag and are named after it
-- ARGV[1] now  microseconds, "" for Redis TIME
-- ARGV[2] version  of the policy that the caller's limits come from
-- ARGV[3] member  name of the limiter
-- ARGV[4] ttl  microseconds that a lease lasts
-- ARGV[5] beat  microseconds for which the limiter counts as live from now on, 0 to forget it, "" to leave it as it is; where the policy has records a space
--   and the latest edit of one that it has heard of follow, RECORD_NONE for none
-- ARGV[6] told  "1" where grants are to say what they leave, else ""; where the limiter asks for its stock of scopes "1" or "0", and of each of them
--   packed as '<I2BI4I4I4': path from 1, level, tokens wanted, tokens still there, tokens that it may have
-- ARGV[7] questions  packed, as the fragment path says
-- ARGV[8] ...  paths; then of each account: path from 1, level, scope, tokens wanted, tokens still held, tokens that all may hold, tokens given back, tokens owed
-- Reply {"stale", version, ...} as fragments/path.lua says or {"done", "-1", or with a beat how many limiters live and when limits last changed, a record's too, by the buckets' time, or, where it has heard of edits, not a record's, and what edits_since says, a line a question: where it is granted nothing, or "granted
--   LEVEL LEFT BURST", in whole tokens, of the bucket on its way that holds least after it, if there is one and that was asked; else
--   as admit says it; a line an account: tokens leased, tokens paid of what is owed, holders of the scope; where it asks for stock, a line of how
--   much there is of each}
-- Never leases more of a scope to all its holders than they may hold, nor more than half of what is left, nor for stock what is below half of a burst.

local STOCK, STOCK_SIZE = '<I2BI4I4I4', 15

-- granted_line tells what the bucket on a path has that holds least; nil where there is none.
local function granted_line(path)
  local at, b = path_least(path)
  if not at then return nil end
  local _, level = told_level(path, at)
  return format('granted %d %d %d', level, floor(bucket_levels[b] / 1000000), bucket_bursts[b] / 1000000)
end

function scripts.grant(KEYS, ARGV)
  local STATE, NOW, VERSION = KEYS[1], ARGV[1], ARGV[2]
  call.member, call.ttl = ARGV[3], ARGV[4] + 0
  local BEAT, TOLD, STOCKS, QUESTIONS = ARGV[5], byte(ARGV[6]) == 49, ARGV[6], ARGV[7]
  call.buckets, call.global_bucket = 'b:', 'gb'
  local time_us = now_us(NOW)

  local accounts_at = paths_read(8)
  clock_begin(time_us, { 'pv', 'gb', 'gm', BEAT ~= '' and 'rv' or nil })
  local stale = stale_reply(VERSION)
  if stale then return stale end
  buckets_read()

  local reply, changed = { 'done', '-1' }, false
  if BEAT ~= '' then
    local beat, heard = match(BEAT, '^(%d+) ?(%d*)$')
    if heard == '' then
      reply[2] = format('%d %d', members_beat(tonumber(beat)), math.max(call.changed_at, state_num('rv')))
    else
      reply[2] = format('%d %d %s', members_beat(tonumber(beat)), call.changed_at, edits_since(tonumber(heard)))
    end
  end

  local ACCOUNT_SIZE = 8
  local paid = {}
  for at = accounts_at, #ARGV, ACCOUNT_SIZE do
    local path = call.paths[tonumber(ARGV[at])]
    local b = path[tonumber(ARGV[at + 1])]
    local owing = b or path.beside and path[1] -- A dimension's value without room owes it to the bucket that is shared.
    paid[at] = bucket_draw(owing, tonumber(ARGV[at + 7]), 1)
    bucket_return(b, lease_return(ARGV[at + 2], tonumber(ARGV[at + 6])))
    changed = changed or owing and bucket_dirty[owing]
  end
  for at = 1, #QUESTIONS, QUESTION_SIZE do
    local path, cost = question_at(QUESTIONS, at)
    local answer = decide(path, cost)
    if not answer then
      charge(path, cost)
      changed = true
      if TOLD then answer = granted_line(path) end
    end
    reply[#reply + 1] = answer or ''
  end
  for at = accounts_at, #ARGV, ACCOUNT_SIZE do
    local b = call.paths[tonumber(ARGV[at])][tonumber(ARGV[at + 1])]
    local leased, holders = lease_draw(b, ARGV[at + 2], tonumber(ARGV[at + 3]), tonumber(ARGV[at + 4]), tonumber(ARGV[at + 5]))
    changed = changed or leased > 0
    reply[#reply + 1] = format('%d %d %d', leased, paid[at], holders)
  end
  if #STOCKS > 1 then
    local stocked = {}
    for at = 2, #STOCKS, STOCK_SIZE do
      local number, level, want, held, cap = struct_unpack(STOCK, STOCKS, at)
      local drawn = stock_draw(call.paths[number][level], want, held, cap)
      changed = changed or drawn > 0
      stocked[#stocked + 1] = drawn
    end
    reply[#reply + 1] = table.concat(stocked, ' ')
  end
  if changed then
    buckets_write(time_us)
    state_write()
  else
    clock_keep()
  end
  return reply
end
