-- probe lets the call of a guest, whose work is no job of the waiting room, be a probe of a downstream's half-open breaker.
-- KEYS[1] state  hash; the partition's other keys share its hash tag and are named after it
-- ARGV[1] now  microseconds, "" for Redis TIME
-- ARGV[2] downstream  name
-- ARGV[3] call  name of the call, unlike that of any other
-- ARGV[4] what  "begin" or "end"
-- Reply {"probe" | "held" | "ended", "more" | "", state, period, microseconds until that ends by time alone, -1 for never};
--   the state is as breaker.lua says it, "closed" and 0 where there is no breaker
-- Never lets more calls and jobs together be probes than the rules allow, and counts a call that is sent again once.
-- @flag allow-oom
-- @relief
-- changed makes what is due by time alone, probes' time-outs among it, and lets the gate follow.
local function changed()
  local f = breaker.due(call.downstream, call.now)
  if f then breaker_follow(f) end
  return breaker.open(call.downstream)
end

-- begun reports whether the call is a probe call.now, or was one already.
local function begun(f)
  local calls = breaker.guests(f)
  for id, c in pairs(calls) do
    if c.period ~= f.period then redis.call('HDEL', f.key, id) end
  end
  if calls[call.guest] then return calls[call.guest].period == f.period end
  local name = 'b:' .. call.downstream
  if f.state ~= breaker.HALF_OPEN or gate_closed(name) then return false end
  gate_pass(name)
  redis.call('HSET', f.key, call.guest, format('%d|%d', f.period, breaker.clock()))
  return true
end

-- finished gives back the unit of a call, if its period lasts.
local function finished(f)
  local name, c = 'b:' .. call.downstream, breaker.guests(f)[call.guest]
  if redis.call('HDEL', f.key, call.guest) == 0 or c.period ~= f.period then return end
  local g = gate(name)
  if not g then return end
  g.held = math.max(0, g.held - 1)
  call.gates_dirty[name], call.freed[name] = true, true
end

function scripts.probe(KEYS, ARGV)
  local STATE, NOW, WHAT = KEYS[1], ARGV[1], ARGV[4]
  call.downstream, call.guest = ARGV[2], 'p:' .. ARGV[3]
  local now = now_us(NOW)
  call.now = now
  call_begin(now, {})

  local f, word = changed(), 'held'
  if WHAT == 'end' then
    word = 'ended'
    if f then finished(f) end
  elseif f and begun(f) then
    word = 'probe'
  end
  freed_wake(now)
  local rest = fill(now) and 'more' or ''
  if not f then return { word, rest, breaker.STATES[breaker.CLOSED], '0', '-1' } end
  local state = f.forced == 1 and f.state == breaker.CLOSED and 'forced' or breaker.STATES[f.state]
  return { word, rest, state, format('%d', f.period), format('%d', breaker.ends(f)) }
end
