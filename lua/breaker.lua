-- breaker counts what a worker's calls of downstreams came to, and changes the state of their breakers.
-- KEYS[1] state  hash; the partition's other keys share its hash tag and are named after it
-- ARGV[1] now  microseconds, "" for Redis TIME
-- ARGV[2] worker  name, the same for as long as its sequence numbers grow
-- ARGV[3] guest  1 for one that is not registered, else 0
-- ARGV[4] kinds  number of different rules
-- ARGV[5] ...  these, as fragments/breaker.lua has them; then of each report: downstream, which of the rules, sequence
--   number, 0 of a worker that keeps none, period in which the calls were let through, 0 for none, successes, failures,
--   calls that became slow, calls that ended having been slow, failures after the last success
-- Reply {"counted" | "more", of each report: state, period, microseconds until it ends by time alone, -1 for never}; the
--   state is "forced" where an operator has closed it, "full" where there are too many breakers for another
-- Never counts a numbered report twice, or one of another period. Without a number its rules are for a new breaker alone.
local STATE, NOW, WORKER, GUEST, KINDS, RULES_AT, REPORT_SIZE = KEYS[1], ARGV[1], ARGV[2], ARGV[3] == '1', tonumber(ARGV[4]), 5, 9
-- @include call
-- @include breaker
-- @include relief
local time_us = now_us(NOW)
local CONFIG_HOLD, KEEP_REPORTER, PURGE_EVERY = 10000000, 60000000, 16
call_begin(time_us, {})
local clock = breaker.clock()

local function reporters_purge(f)
  local gone = {}
  for worker, w in pairs(breaker.reporters(f)) do
    if clock - w.at > math.max(f.rules.window, KEEP_REPORTER) then gone[#gone + 1] = 'w:' .. worker end
  end
  if #gone > 0 then redis.call('HDEL', f.key, unpack(gone)) end
  f.workers = f.workers - #gone
end

local function reporter_open(f)
  if f.reporter then return f.reporter end
  local text = redis.call('HGET', f.key, 'w:' .. WORKER)
  local w = text and breaker.reporter(text)
  if not w then
    if f.workers > 0 and f.workers % PURGE_EVERY == 0 then reporters_purge(f) end
    f.workers = f.workers + 1
    w = { sequence = 0, at = 0, epoch = 0, streak = 0, ring = '' }
  end
  f.reporter, f.worker = w, WORKER
  return w
end

-- configure puts a worker's rules in force once no worker has spoken for the present ones for a while.
local function configure(f, rules)
  if rules.text == f.rules.text then
    f.confirmed = clock
  elseif f.state == breaker.CLOSED and clock - f.confirmed >= CONFIG_HOLD then
    f.rules, f.confirmed = rules, clock
    breaker.restart(f)
  end
end

-- ring_add counts in the slice with a number, and lets go of those that have left a window of so many.
local function ring_add(ring, index, buckets, counts)
  while ring[1] and ring[1][1] <= index - buckets do table.remove(ring, 1) end
  local last = ring[#ring]
  if not last or last[1] ~= index then
    last = { index, 0, 0, 0, 0 }
    ring[#ring + 1] = last
  end
  for i = 1, 4 do last[i + 1] = last[i + 1] + counts[i] end
end

local function ring_text(ring)
  local parts = {}
  for i, slice in ipairs(ring) do parts[i] = format('%d,%d,%d,%d,%d', unpack(slice)) end
  return table.concat(parts, ';')
end

-- calls_count counts calls of a closed period, and trips if that is bad news enough for a quorum.
local function calls_count(f, w, counts, streak)
  local index = breaker.slice(f)
  local all = ring_parse(f.ring)
  local ended, _, _, slow = ring_sum(all, index, f.rules.buckets)
  if ended == 0 and slow == 0 then f.begun = clock end
  ring_add(all, index, f.rules.buckets, counts)
  f.ring = ring_text(all)
  if w.epoch ~= f.epoch then w.epoch, w.ring, w.streak = f.epoch, '', 0 end
  local own = ring_parse(w.ring)
  ring_add(own, index, f.rules.buckets, counts)
  w.ring = ring_text(own)
  if counts[1] > 0 then f.streak, w.streak = 0, 0 end
  f.streak, w.streak = f.streak + streak, w.streak + streak
  if f.forced == 1 or counts[2] == 0 and counts[3] == 0 then return end
  breaker.judge(f, time_us)
end

-- probes_count counts probes, and opens or closes if that decides it.
local function probes_count(f, counts)
  f.passed, f.slow = f.passed + counts[1], f.slow + counts[3]
  if counts[2] > 0 then
    breaker.trip(f, breaker.PROBE_FAILED, time_us)
  elseif f.slow / f.rules.success_threshold >= f.rules.slow_call_rate then
    breaker.trip(f, breaker.PROBES_SLOW, time_us)
  elseif f.passed >= f.rules.success_threshold then
    breaker.enter(f, breaker.CLOSED, breaker.PROBES_PASSED, time_us)
    breaker.restart(f)
    f.ramp = 1
  end
end

local function report(f, rules, sequence, period, counts, streak)
  local changed = breaker.advance(f, time_us)
  f.guest = GUEST
  local w = reporter_open(f)
  local numbered = sequence > 0
  if not numbered then sequence = w.sequence + 1 end
  if sequence <= w.sequence then return end
  w.sequence, w.at, f.heard = sequence, clock, clock
  if numbered then configure(f, rules) end
  if changed or f.state == breaker.OPEN or period ~= f.period and period ~= 0 then return end
  if period == 0 and (f.state ~= breaker.CLOSED or f.ramp > 0) then return end
  if f.state == breaker.HALF_OPEN then probes_count(f, counts) else calls_count(f, w, counts, streak) end
end

local rules_of, touched, reply = {}, {}, { 'counted' }
for i = 1, KINDS do rules_of[i] = breaker.rules(ARGV[RULES_AT + i - 1]) end
for at = RULES_AT + KINDS, #ARGV, REPORT_SIZE do
  local n = {}
  for i = 1, REPORT_SIZE - 1 do n[i] = tonumber(ARGV[at + i]) end
  local f = breaker.open(ARGV[at]) or breaker.make(ARGV[at], rules_of[n[1]])
  touched[#touched + 1] = f or false
  if f then report(f, rules_of[n[1]], n[2], n[3], { n[4], n[5], n[6], n[7] }, n[8]) end
end

local follow = {}
for _, f in ipairs(touched) do
  if f and not f.saved then
    f.saved = true
    local w = f.reporter
    if breaker.save(f, time_us, { 'w:' .. WORKER, format('%d|%d|%d|%d|%s', w.sequence, w.at, w.epoch, w.streak, w.ring) }) then
      follow[#follow + 1] = f
    end
  end
  local forced = f and f.forced == 1 and f.state == breaker.CLOSED and 'forced'
  reply[#reply + 1] = forced or f and breaker.STATES[f.state] or 'full'
  reply[#reply + 1] = format('%d', f and f.period or 0)
  reply[#reply + 1] = format('%d', f and breaker.ends(f) or -1)
end

-- gates_follow lets the gates follow. The functions of a fill are made only by the calls that need them.
local function gates_follow()
-- @include follow
  for _, f in ipairs(follow) do breaker.follow(f) end
  freed_wake(time_us)
  return fill(time_us)
end

if #follow == 0 then
  state_write()
elseif gates_follow() then
  reply[1] = 'more'
end
return reply
