-- versions: the last versions of the policy in a hash. Nothing else writes to it. There are at most KEPT_VERSIONS, and of
-- those before the newest at most KEPT_BYTES.
local KEPT_VERSIONS, KEPT_BYTES = 100, 67108864

local function newest_first(a, b) return tonumber(a) > tonumber(b) end

-- version_keep adds a version. The one in force before it is added too where an older program did not.
local function version_keep(current, version, text)
  if current ~= '0' and redis.call('HEXISTS', keys.policies, current) == 0 then
    redis.call('HSET', keys.policies, current, redis.call('GET', keys.policy) or '')
  end
  redis.call('HSET', keys.policies, version, text)
  local kept, bytes = redis.call('HKEYS', keys.policies), 0
  table.sort(kept, newest_first)
  for i = 2, #kept do
    bytes = bytes + redis.call('HSTRLEN', keys.policies, kept[i])
    if i > KEPT_VERSIONS or bytes > KEPT_BYTES then redis.call('HDEL', keys.policies, kept[i]) end
  end
end

-- portion: what an edit of the policy that is stored in steps has written under its name (stage.lua).
local function edit_read(edit, fields)
  local values, f = redis.call('HMGET', call.prefix .. 'edit:' .. edit, unpack(fields)), {}
  for i, field in ipairs(fields) do f[field] = values[i] or '' end
  return f
end

-- portion_read returns a portion as a list of kind, name and value.
local function portion_read(key, at)
  local list = {}
  for text in string.gmatch(redis.call('LINDEX', call.prefix .. key, at) or '', '([^\n]*)\n') do list[#list + 1] = text end
  return list
end

-- settings: what dispatch and admission know of the policy, a list of kind, name and value, empty where there is none any more:
--   q QUEUE           its settings (queue.lua)
--   b TENANT:QUEUE    its own bound (depth.lua); of :TENANT its tier, where tiers have bounds
--   g GATE            limit or rate|burst, with /partitions where all divide the limit or rate (the burst is this one's part); of a limit
--                     that moves by itself what share.lua says
--   p DOWNSTREAM      how many jobs may wait while its breaker is not closed; an empty name is every other
--   o QUEUE           slots that only some of its classes may take, as the gate o has them (gate.lua)
--   r QUEUE           that it is measured how much the queue is pressed (pressure.lua)
--   u                 that usage is kept (usage.lua)
--   d                 that rates are watched (anomaly.lua)
--   w CLASS:TENANT    weight; an empty tenant is everybody else
--   t CLASS           weights by tier, of tenants whose records name one (weight.lua)
--   c                 caps by tier, likewise
-- `nb`, `nk` and `nw` count the bounds, the p and the weights; `pr` names the edit whose bounds have to be counted (recount.lua), `ps`
-- the settings as they are, by version and digest, where that is known (settings.go).
local SETTINGS = { b = { 'bounds', 'nb' }, p = { 'maxparked', 'nk' }, w = { 'weights', 'nw' } }

-- share_want notes what the policy says of a bound that all partitions divide, and returns what is left of it for this one.
local function share_want(name, text)
  local whole, burst, parts = match(text or '', '^([^|]+)(.*)/(%d+)$')
  local s = share_read(name)
  if not whole then
    if s then
      s.whole = ''
      share_write(name, s)
    end
    return text
  end
  parts = tonumber(parts)
  if not s or s.parts ~= parts then s = { units = 1, of = parts, parts = parts } end
  s.whole = whole
  share_write(name, s)
  if burst ~= '' then return format('%.17g', share_rate(s)) .. burst end
  -- Other partitions may still run what they had of an older cap: only who has looked at all raises what is in force (balance.go).
  local before = share_in_force(gate(name))
  return format('%d', math.min(share_cap(s), before or share_cap(s)))
end

-- accounts_look has accounts look again that wait by a rate which is that of each: the old one's timer may be far ahead.
local function accounts_look(name, now)
  for _, account in ipairs(redis.call('SMEMBERS', keys.accounts)) do
    if gate_default('s:' .. account) == name then due_add(keys.due, now, 'gs:' .. account) end
  end
end

-- waiting_look has those wake that wait for downstreams under the cap of each, also where nothing runs that counts.
local function waiting_look(name)
  for _, waited_for in ipairs(name == 'd:*' and redis.call('HKEYS', keys.waits) or match(name, '^d:.*%+%*$') and redis.call('SMEMBERS', keys.accounts) or {}) do
    if gate_default('d:' .. waited_for) == name then call.freed['d:' .. waited_for] = true end
  end
end

-- adaptive_apply brings what is in force of a limit that moves into its gate g, whose share is s; limits of admission for life microseconds, as
-- limits_apply has it. Who waits by a gate that is of each account looks again.
local function adaptive_apply(gate_name, a, g, s, now, life)
  if limits_move(gate_name) then return limits_apply(gate_name, a.limit, life) end
  local text = adaptive_text(a)
  text = share_want(gate_name, s and s.whole ~= '' and text .. '/' .. s.parts or text)
  if g.burst then
    rate_put(gate_name, text)
    if gate_default(gate_name) == gate_name then accounts_look(gate_name, now) end
  else
    cap_want(gate_name, text, true)
    waiting_look(gate_name)
  end
  call.gates_dirty[gate_name], call.freed[gate_name] = true, true
end

-- default_changed lets those wake that stand under a gate of all that have none of their own. Of one that is new it counts what runs,
-- of one that has gone it forgets that.
local function default_changed(name)
  for covered, n in pairs(entries_by_cap()) do
    if covered ~= name and gate_default(covered) == name then
      local own = gate(covered)
      if not own or own.default then
        call.gates[covered] = gate_parse(covered, format('*|%d', n))
        call.gates_dirty[covered] = true
      elseif own.over then
        gate_again(covered)
      end
      call.freed[covered] = true
    end
  end
  waiting_look(name)
end

-- defaults_first orders names of gates: first those of all that have none of their own.
local function defaults_first(a, b)
  local first, second = gate_default(a) == a, gate_default(b) == b
  if first ~= second then return first end
  return a < b
end

-- caps_apply makes gates of caps and rates what is wanted: first those of all that have none of their own.
local function caps_apply(wanted, names, now)
  local before, covered = {}, {}
  call.entries = nil
  local all = names
  names = {}
  for _, name in ipairs(all) do
    local text = adaptive_want(name, wanted[name])
    if limits_move(name) then
      limits_apply(name, tonumber(text or nil))
    else
      names[#names + 1], wanted[name] = name, share_want(name, text)
    end
  end
  table.sort(names, defaults_first)
  local loaded
  for _, name in ipairs(names) do
    if not loaded and gate_default(name) ~= name then
      gates_load(names)
      loaded = true
    end
    if not rate_aside(name, wanted[name]) then
      if gate_is_rate(name) then
        rate_put(name, wanted[name])
        if gate_default(name) == name then accounts_look(name, now) end
      else
        wanted[name] = queue_cap_aside(name, wanted[name]) or wanted[name]
        if gate_default(name) == name then
          before[name] = gate(name)
          covered[name] = wanted[name] and not before[name]
        end
        cap_want(name, wanted[name], not covered[gate_default(name)])
      end
      call.gates_dirty[name], call.freed[name] = true, true
    end
  end
  for name, was in pairs(before) do
    if was or wanted[name] then default_changed(name) end
  end
end

-- tiers_want puts caps of tiers in force for tenants whose records name them. Of these it looks at those that have jobs in ready streams: nobody else holds a unit,
-- and so nobody else waits for one.
local function tiers_want(text)
  local names, before = {}, {}
  for name in pairs(tiers_named() and entries_by_cap() or {}) do
    if byte(name) == 116 then names[#names + 1] = name end
  end
  table.sort(names)
  for i = 1, #names, GATES_AT_ONCE do gates_load({ unpack(names, i, math.min(#names, i + GATES_AT_ONCE - 1)) }) end
  for _, name in ipairs(names) do before[name] = gate(name) end
  state_set('tc', text)
  caps_recorded()
  for i = 1, #names, GATES_AT_ONCE do tenants_recorded({ unpack(names, i, math.min(#names, i + GATES_AT_ONCE - 1)) }) end
  for _, name in ipairs(names) do
    if call.own_records[sub(name, 3)] then
      gate_recapped(name, before[name], entries_by_cap())
      call.freed[name] = true
    end
  end
end

-- queue_taken reports whether jobs wait in a class of a queue that it would have no more, or elsewhere, with such settings.
local function queue_taken(name, text)
  if not state_get('q:' .. name) then return false end
  local before, after = queue_open(name), {}
  queue_config(after, text)
  for c = 1, before.n do
    if before.waiting[c] > 0 and before.names[c] ~= after.names[c] then return true end
  end
end

-- settings_taken returns a queue of which that is so. The classes of every other queue are those of all that have no settings of their own.
local function settings_taken(list)
  local own, every = {}, state_get('cfg:*') or DEFAULT_QUEUE
  local classes = match(every, '^[^|]*')
  for i = 1, #list, 3 do
    if list[i] == 'q' then
      own[list[i + 1]] = true
      if list[i + 1] == '*' then every = list[i + 2] ~= '' and list[i + 2] or DEFAULT_QUEUE end
    end
  end
  for i = 1, #list, 3 do
    if list[i] == 'q' and queue_taken(list[i + 1], list[i + 2] ~= '' and list[i + 2] or every) then return list[i + 1] end
  end
  if match(every, '^[^|]*') == classes then return end
  local fields = redis.call('HKEYS', call.state)
  table.sort(fields)
  for _, field in ipairs(fields) do
    local name = match(field, '^q:(.+)$')
    if name and not own[name] and not state_get('cfg:' .. name) and queue_taken(name, every) then return name end
  end
end

-- overflow_said returns what settings of a queue say of overflow.
local function overflow_said(text) return match(text or '', '^[^|]*|[^|]*|[^|]*|[^|]*|([^|]*)|') or '-' end

local function queue_want(name, text, edit, now)
  local field = 'cfg:' .. name
  if overflow_said(text) ~= '-' or overflow_said(state_get(field)) ~= '-' then state_set('pr', edit) end -- One that lifted a bound may go, too.
  if name == '*' or redis.call('EXISTS', call.prefix .. 'dead:' .. name) == 1 then due_add(keys.due, now, 'r' .. name) end
  if text == '' then
    redis.call('HDEL', call.state, field)
    call.st[field] = false
    return
  end
  redis.call('HSET', call.state, field, text)
  call.st[field] = text
end

-- pressure_want has a queue measured, or no more. `npr` counts those that are.
local function pressure_want(name, wanted)
  local field = 'pressure:' .. name
  if wanted == (state_get(field) and true or false) then return end
  local n = tonumber(state_get('npr') or 0) + (wanted and 1 or -1)
  state_set('npr', n > 0 and n)
  state_set(field, wanted and '1|0|0|0|0|')
end

-- reserve_want keeps slots of a queue for some of its classes, or no more. Who is another may have changed, so they are counted anew.
local function reserve_want(queue, spec)
  local name = 'o:' .. queue
  local was = gate(name)
  if spec ~= '' then
    local g = reserve_parse(spec, 0)
    for of_class, n in pairs(entries_by_cap()) do
      local of, class = match(of_class, '^(o:.*)|(%d+)$')
      if of == name and not g.classes[class + 1] then g.held = g.held + n end
    end
    if not was then gate_count(name, 1) end
    call.gates[name] = g
  elseif was then
    gate_count(name, -1)
    call.gates[name] = false
  end
  call.gates_dirty[name], call.freed[name] = true, true
end

-- classes_counted counts the classes of each queue that a table names.
local function classes_counted(of)
  local counts = {}
  for name in pairs(of) do counts[name] = remembered(CONFIGS, state_get('cfg:' .. name) or state_get('cfg:*') or DEFAULT_QUEUE).n end
  return counts
end

-- queues_listed names the queues to which a list may give other classes.
local function queues_listed(list)
  local of, every = {}, false
  for i = 1, #list, 3 do
    if list[i] == 'q' then every, of[list[i + 1]] = every or list[i + 1] == '*', true end
  end
  for _, field in ipairs(every and redis.call('HKEYS', call.state) or {}) do
    local name = match(field, '^q:(.+)$')
    if name then of[name] = true end
  end
  return of
end

-- settings_apply makes the settings of a list so, for an edit. A queue that has fewer classes then forgets the phase and the virtual time of those that are gone.
local function settings_apply(list, edit, now)
  local wanted, names, touched, counts = {}, {}, {}, classes_counted(queues_listed(list))
  call.entries = nil
  for i = 1, #list, 3 do
    local kind, name, value = list[i], list[i + 1], list[i + 2]
    if kind == 'g' then
      if wanted[name] == nil then names[#names + 1] = name end
      wanted[name] = value ~= '' and value
    elseif kind == 'q' then
      queue_want(name, value, edit, now)
    elseif kind == 'o' then
      reserve_want(name, value)
    elseif kind == 'r' then
      pressure_want(name, value ~= '')
    elseif kind == 'l' then
      state_set('load', value ~= '' and value)
    elseif kind == 'd' then
      state_set('anom', value ~= '' and value)
    elseif kind == 't' then
      state_set('tw:' .. name, value ~= '' and value)
    elseif kind == 'c' then
      tiers_want(value ~= '' and value)
    elseif kind == 'u' then
      usage_want(value ~= '', now)
    else
      local to = SETTINGS[kind]
      touched[to] = true
      if value == '' then
        redis.call('HDEL', keys[to[1]], name)
      else
        redis.call('HSET', keys[to[1]], name, value)
      end
      if kind == 'b' then state_set('pr', edit) end -- Also where one goes: it may have lifted what bounds the tenant from now on.
    end
  end
  call.queues, call.bounds = {}, {}
  for name, n in pairs(classes_counted(counts)) do
    if n < counts[name] and state_get('q:' .. name) then queue_open(name).touched = true end
  end
  if #names > 0 then caps_apply(wanted, names, now) end
  for to in pairs(touched) do
    local n = redis.call('HLEN', keys[to[1]])
    if to ~= SETTINGS.p and state_num(to[2]) >= RECORDED then n = n + RECORDED end
    state_set(to[2], n > 0 and n)
  end
end

-- version_store puts a version in force and tells the audit: f has its version, text, window, edit, author, reason, restored, changes
-- and copy.
local function version_store(f, current, now)
  version_keep(current, f.version, f.text)
  audit_add({
    'at', format('%d', now), 'from', current, 'to', f.version, 'author', f.author, 'reason', f.reason, 'restored', f.restored,
    'changes', f.changes,
  })
  redis.call('SET', keys.policy, f.text)
  if f.copy ~= '' then redis.call('SET', keys.copy, f.copy) end
  state_set('pv', f.version)
  state_set('pe', f.edit)
  limits_changed()
  state_set('dw', tonumber(f.window))
end
