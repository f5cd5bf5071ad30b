-- breaker counts what a worker's calls of downstreams came to, and changes the state of their breakers.
-- KEYS[1] state  hash; the partition's other keys share its hash tag and are named after it
-- ARGV[1] now  microseconds, "" for Redis TIME
-- ARGV[2] worker  name, the same for as long as its sequence numbers grow
-- ARGV[3] guest  1 for one that is not registered, else 0
-- ARGV[4] kinds  number of different rules
-- ARGV[5] ...  these: origin (0 built in, 1 a worker's, 2 the policy's), version of the policy that the worker follows, and
--   the rules as fragments/breaker.lua has them, parted by spaces; then of each report: downstream, which of the rules,
--   sequence number, 0 of a worker that keeps none, period in which the calls were let through, 0 for none, successes,
--   failures, calls that became slow, calls that ended having been slow, failures after the last success, microseconds that
--   the calls ran, after a space how many others the downstream refused as too many, how much it pushed
--   back (1 to 5) and for how many microseconds, if anything of that is to be told, what each tenant has of it (number,successes,failures,slow,slow ends,streak;..., "" for no tenant's), and
--   its errors (how often, a tab, text, a line each)
-- Reply {"counted" | "more", version of the policy, of each report: state, period, microseconds until it ends by time alone, -1 for never, the numbers
--   of tenants whose calls fail where others' do not, "differs" where other rules than the worker's are in force}; the state
--   is "forced" where an operator has closed it, "full" where there are too many breakers for another
-- Never counts a numbered report twice, or one of another period. Without a number its rules are for a new breaker alone, but
--   for the policy's.
-- @flag allow-oom
-- @relief
local CONFIG_HOLD, KEEP_REPORTER, PURGE_EVERY, POLICY, ERRORS_KEPT = 10000000, 60000000, 16, 2, 5
local PUSH_LEAST = 2000000 -- for how long a receiver that pushes back is heeded, at least

local function reporters_purge(f)
  local gone = {}
  for worker, w in pairs(breaker.reporters(f)) do
    if call.clock - w.at > math.max(f.rules.window, KEEP_REPORTER) then gone[#gone + 1] = 'w:' .. worker end
  end
  if #gone > 0 then redis.call('HDEL', f.key, unpack(gone)) end
  f.workers = f.workers - #gone
end

-- reporter_open returns the worker. What this call needs of it, of the groups of its tenants and of errors is read at once.
local function reporter_open(f, parts, with_errors)
  local fields = {}
  if not f.reporter then fields[1] = 'w:' .. call.worker end
  if with_errors and not f.errors then fields[#fields + 1] = 'e' end
  for _, part in ipairs(parts) do
    local g = tenants.group(f, part[1])
    if not f.groups[g] then
      f.groups[g] = { epoch = f.epoch, streak = 0, ring = '' }
      fields[#fields + 1] = 's:' .. format('%d', g)
    end
  end
  local texts = #fields > 0 and redis.call('HMGET', f.key, unpack(fields)) or {}
  for i, field in ipairs(fields) do
    if field == 'e' then f.errors = texts[i] or '' end
    local g = tonumber(match(field, '^s:(%d+)$') or nil)
    if g and texts[i] then f.groups[g] = tenants.parse(texts[i]) end
  end
  if f.reporter then return f.reporter end
  local w = texts[1] and breaker.reporter(texts[1])
  if not w then
    if f.workers > 0 and f.workers % PURGE_EVERY == 0 then reporters_purge(f) end
    f.workers = f.workers + 1
    w = { sequence = 0, at = 0, epoch = 0, streak = 0, ring = '' }
  end
  f.reporter, f.worker = w, call.worker
  return w
end

-- configure puts a worker's rules in force: the policy's at once, and those of a worker's file once no worker has spoken for the
-- present ones for a while. One that has not heard of the policy's last version says nothing.
local function configure(f, rules)
  if rules.version < f.version then return end
  local news = rules.version > f.version and (rules.origin == POLICY or f.origin == POLICY)
  f.version = rules.version
  if rules.text == f.rules.text then
    f.confirmed, f.origin = call.clock, rules.origin
  elseif news or f.origin ~= POLICY and f.state == breaker.CLOSED and call.clock - f.confirmed >= CONFIG_HOLD then
    f.rules, f.confirmed, f.origin = rules, call.clock, rules.origin
    if f.state == breaker.CLOSED then breaker.restart(f) end
  else
    f.differs = format('%s|%d|%s', call.worker, call.now, rules.text)
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

-- tenants_count counts what each tenant has of a report.
local function tenants_count(f, index, parts)
  local half, kept = tenants.half(f, index)
  for _, part in ipairs(parts) do
    local g = tenants.group(f, part[1])
    local t = f.groups[g]
    if not t or t.epoch ~= f.epoch then t = { epoch = f.epoch, streak = 0, ring = '' } end
    local ring = ring_parse(t.ring)
    ring_add(ring, half, kept, { part[2], part[3], part[4], part[5] })
    if part[2] > 0 then t.streak = 0 end
    t.ring, t.streak, t.counted, f.groups[g] = ring_text(ring), t.streak + part[6], true, t
  end
end

-- alone returns the numbers of those tenants of a report whose calls meet a rule where the others' do not. If the worker's calls of other
-- tenants do not, what it saw is neither the downstream's fault nor its own.
local function alone(f, parts)
  local index = breaker.slice(f)
  for _, rule in ipairs(breaker.RULES) do
    local share = breaker.SHARES[rule]
    local _, others, most, worst = tenants.shares(f, share, breaker.sums(f, index))
    local least, found = tenants.least(f, share), {}
    if most >= least and others < least then
      for _, part in ipairs(parts) do
        if tenants.group(f, part[1]) == worst then found[#found + 1] = format('%d', part[1]) end
      end
      return table.concat(found, ',')
    end
  end
  return ''
end

-- calls_count counts calls of a closed period, and trips if that is bad news enough for a quorum.
local function calls_count(f, w, counts, streak, parts)
  local index = breaker.slice(f)
  local all = ring_parse(f.ring)
  local ended, _, _, slow = ring_sum(all, index, f.rules.buckets)
  if ended == 0 and slow == 0 then f.begun = call.clock end
  ring_add(all, index, f.rules.buckets, counts)
  f.ring = ring_text(all)
  if w.epoch ~= f.epoch then w.epoch, w.ring, w.streak = f.epoch, '', 0 end
  local own = ring_parse(w.ring)
  ring_add(own, index, f.rules.buckets, counts)
  w.ring = ring_text(own)
  if counts[1] > 0 then f.streak, w.streak = 0, 0 end
  f.streak, w.streak = f.streak + streak, w.streak + streak
  tenants_count(f, index, parts)
  if f.forced == 1 or counts[2] == 0 and counts[3] == 0 then return end
  if not breaker.judge(f, call.now) then return alone(f, parts) end
end

-- tenants_tried notes whose probes passed and failed, and reports whether a failure opens, and whether only because of one
-- tenant's though another called too.
local function tenants_tried(f, parts)
  local opens, lone = false, false
  for _, part in ipairs(parts) do
    if part[2] > 0 then tenants.pass(f, tenants.group(f, part[1]) + 1) end
  end
  for _, part in ipairs(parts) do
    if part[3] > 0 and not (opens and not lone) then
      local ring = ring_parse(f.ring)
      local callers = tenants.shares(f, 'rate', breaker.sums(f, #ring > 0 and ring[#ring][1] or 0))
      opens, lone = tenants.fail(f, tenants.group(f, part[1]) + 1, part[3], callers < 2)
    end
  end
  return opens, lone
end

-- probes_count counts probes, and opens or closes if that decides it.
local function probes_count(f, counts, parts)
  f.passed, f.slow = f.passed + counts[1], f.slow + counts[3]
  local opens, lone = tenants_tried(f, parts)
  if opens then
    if lone then f.row = math.max(f.row, 1) - 1 end -- The cooldown is as long as the last.
    breaker.trip(f, breaker.PROBE_FAILED, call.now)
  elseif f.slow / f.rules.success_threshold >= f.rules.slow_call_rate then
    breaker.trip(f, breaker.PROBES_SLOW, call.now)
  elseif f.passed >= f.rules.success_threshold then
    breaker.enter(f, breaker.CLOSED, breaker.PROBES_PASSED, call.now)
    breaker.restart(f)
    f.ramp = 1
  end
end

-- error_add adds an error to those that are listed, by their kinds: two that differ in numbers alone are one.
local function error_add(lines, kinds, at, times, said)
  local kind = string.gsub(said, '%d+', '#')
  local known = kinds[kind]
  if known then
    known.times = known.times + times
  elseif #lines < ERRORS_KEPT then
    kinds[kind] = { at = at, times = times, said = said }
    lines[#lines + 1] = kinds[kind]
  end
end

-- errors_add puts errors before those that are known.
local function errors_add(f, text)
  local lines, kinds = {}, {}
  for times, said in string.gmatch(text, '(%d+)\t([^\n]*)') do error_add(lines, kinds, call.now, tonumber(times), said) end
  for at, times, said in string.gmatch(f.errors, '(%d+)\t(%d+)\t([^\n]*)') do
    error_add(lines, kinds, tonumber(at), tonumber(times), said)
  end
  for i, line in ipairs(lines) do lines[i] = format('%d\t%d\t%s', line.at, line.times, line.said) end
  f.errors, f.failing = table.concat(lines, '\n'), true
end

local function parts_of(text, counts, streak)
  local parts = {}
  for n, ok, failed, slow, ends, own in string.gmatch(text, '(%d+),(%d+),(%d+),(%d+),(%d+),(%d+)') do
    parts[#parts + 1] = { tonumber(n), tonumber(ok), tonumber(failed), tonumber(slow), tonumber(ends), tonumber(own) }
  end
  return #parts > 0 and parts or { { 0, counts[1], counts[2], counts[3], counts[4], streak } }
end

-- report returns the numbers of the tenants that fail alone.
local function report(f, rules, sequence, period, counts, streak, said)
  local changed = breaker.advance(f, call.now)
  f.guest = call.guest
  local parts = parts_of(said.tenants, counts, streak)
  local w = reporter_open(f, parts, said.errors ~= '')
  local numbered = sequence > 0
  if not numbered then sequence = w.sequence + 1 end
  if sequence <= w.sequence then return end
  w.sequence, w.at, f.heard = sequence, call.clock, call.clock
  f.calls, f.failures, f.ran = f.calls + counts[1] + counts[2], f.failures + counts[2], f.ran + said.ran
  if counts[2] > 0 then f.failed_at = call.clock end
  if said.push > 1 then
    f.push, f.push_for = math.max(f.push or 0, said.push), math.max(f.push_for or 0, said.push_for)
  end
  if said.refused > 0 then redis.call('HINCRBY', f.key, 'a', said.refused) end
  if said.errors ~= '' then errors_add(f, said.errors) end
  if numbered or rules.origin == POLICY or f.origin == POLICY then configure(f, rules) end
  if changed or f.state == breaker.OPEN or period ~= f.period and period ~= 0 then return end
  if period == 0 and (f.state ~= breaker.CLOSED or f.ramp > 0) then return end
  if f.state == breaker.HALF_OPEN then return probes_count(f, counts, parts) end
  return calls_count(f, w, counts, streak, parts)
end

-- changes returns the fields of a breaker that this call changed, but for those that breaker.save writes.
local function changes(f)
  local w = f.reporter
  local fields = { 'w:' .. call.worker, format('%d|%d|%d|%d|%s', w.sequence, w.at, w.epoch, w.streak, w.ring) }
  for g, t in pairs(f.groups) do
    if t.counted then
      fields[#fields + 1] = 's:' .. format('%d', g)
      fields[#fields + 1] = format('%d|%d|%s', t.epoch, t.streak, t.ring)
    end
  end
  if f.failing then
    fields[#fields + 1] = 'e'
    fields[#fields + 1] = f.errors
  end
  if f.differs then
    fields[#fields + 1] = 'd'
    fields[#fields + 1] = f.differs
  end
  return fields
end

-- maker_of returns the number of the one tenant whose calls a report counts; 0 where there are several, or none that is known.
local function maker_of(text)
  local number, more = match(text, '^(%d+),[^;]*;?(.?)')
  return number and more == '' and tonumber(number) or 0
end

-- pushed brings it into force that a receiver pushes back, where the policy lets its dispatch move and nothing stronger holds. It reports
-- whether anything changes.
local function pushed(f)
  local name = 's:' .. f.name
  local a, g = adaptive_read(name), gate(name)
  if not a or not g or f.push < a.push then return false end
  local was = a.push
  a.push, a.eased = f.push, math.max(a.eased, call.clock + math.max(PUSH_LEAST, f.push_for))
  adaptive_write(name, a)
  if a.push > was then adaptive_apply(name, a, g, share_read(name), call.now) end
  return a.push > was
end

-- gates_follow lets the gates follow.
local function gates_follow(follow)
  for _, f in ipairs(follow) do breaker_follow(f) end
  freed_wake(call.now)
  return fill(call.now)
end

function scripts.breaker(KEYS, ARGV)
  local STATE, NOW, KINDS, RULES_AT, REPORT_SIZE = KEYS[1], ARGV[1], tonumber(ARGV[4]), 5, 12
  call.worker, call.guest = ARGV[2], ARGV[3] == '1'
  local time_us = now_us(NOW)
  call_begin(time_us, {})
  call.now, call.clock = time_us, breaker.clock()

  local rules_of, touched, aside, reply, follow = {}, {}, {}, { 'counted', format('%d', state_num('pv')) }, {}
  for i = 1, KINDS do
    local origin, version, text = match(ARGV[RULES_AT + i - 1], '^(%d) (%d+) (.*)$')
    rules_of[i] = breaker.rules(text)
    rules_of[i].origin, rules_of[i].version = tonumber(origin), tonumber(version)
  end
  for at = RULES_AT + KINDS, #ARGV, REPORT_SIZE do
    local n = {}
    for i = 1, 8 do n[i] = tonumber(ARGV[at + i]) end
    local ran, refused, push, push_for = match(ARGV[at + 9], '^(%d+) ?(%d*) ?(%d*) ?(%d*)$')
    local f, gone = breaker.open(ARGV[at]), nil
    if not f then f, gone = breaker.make(ARGV[at], rules_of[n[1]], maker_of(ARGV[at + 10]), time_us) end
    follow[#follow + 1] = gone
    touched[#touched + 1] = f or false
    local said = { ran = tonumber(ran), refused = tonumber(refused) or 0, push = tonumber(push) or 0, push_for = tonumber(push_for) or 0, tenants = ARGV[at + 10], errors = ARGV[at + 11] }
    aside[#touched] = f and report(f, rules_of[n[1]], n[2], n[3], { n[4], n[5], n[6], n[7] }, n[8], said) or ''
  end

  local slower = false
  for i, f in ipairs(touched) do
    if f and not f.saved then
      f.saved = true
      if f.push then slower = pushed(f) or slower end
      if breaker.save(f, time_us, changes(f)) then follow[#follow + 1] = f end
    end
    local forced = f and f.forced == 1 and f.state == breaker.CLOSED and 'forced'
    reply[#reply + 1] = forced or f and breaker.STATES[f.state] or 'full'
    reply[#reply + 1] = format('%d', f and f.period or 0)
    reply[#reply + 1] = format('%d', f and breaker.ends(f) or -1)
    reply[#reply + 1] = aside[i]
    reply[#reply + 1] = f and f.differs and 'differs' or ''
  end

  if #follow == 0 and not slower then
    state_write()
  elseif gates_follow(follow) then
    reply[1] = 'more'
  end
  return reply
end
