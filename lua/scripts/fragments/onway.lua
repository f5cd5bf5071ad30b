-- onway: asks in one command whether there are gates on a job's way.
-- It names them as gate.lua does, with those of all that have none of their own. It needs `ng` loaded.
function reset.onway() call.on_way, call.asked = {}, {} end

local function ask(name)
  if not call.asked[name] then call.asked[name], call.on_way[#call.on_way + 1] = true, name end
end

-- account_ask asks for a cap or a rate of an account, if a downstream names one.
local function account_ask(kind, downstream)
  local at = string.find(downstream, '+', 1, true)
  if not at then return end
  ask(kind .. sub(downstream, 1, at) .. '*')
  ask(kind .. downstream)
end

-- caps_ask asks for the caps that a job may count against, of the kinds of which there are any.
local function caps_ask(queue, tenant, downstream)
  local kinds = match(state_get('ng'), '^[^|]*')
  if string.find(kinds, 'q', 1, true) then ask('q:' .. queue) end
  if string.find(kinds, 'o', 1, true) then ask('o:' .. queue) end
  if string.find(kinds, 't', 1, true) then
    ask('t:*')
    ask('t:' .. tenant)
  end
  if string.find(kinds, 'u', 1, true) then
    ask('u:*:' .. queue)
    ask('u:' .. tenant .. ':' .. queue)
  end
  if downstream ~= '' and string.find(kinds, 'd', 1, true) then
    ask('d:*')
    ask('d:' .. service_of(downstream))
    account_ask('d:', downstream)
  end
end

-- any_on_way reports whether there is one of those that were asked for.
local function any_on_way()
  local found = call.on_way[1] and redis.call('HMGET', keys.gates, unpack(call.on_way)) or {}
  for i = 1, #call.on_way do
    if found[i] then return true end
  end
  return false
end

-- nobody_runs reports whether nobody in the queue is runnable: no job waits, or those that do stand behind gates.
local function nobody_runs(q)
  local waited_for = {}
  for c = 1, q.n do
    if q.waiting[c] > 0 then waited_for[#waited_for + 1] = call.prefix .. 'act:' .. (c - 1) .. ':' .. q.name end
  end
  return not waited_for[1] or gates_any() and redis.call('EXISTS', unpack(waited_for)) == 0
end
