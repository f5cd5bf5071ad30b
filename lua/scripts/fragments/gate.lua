-- everykind: all kinds of gates, for whoever looks for what may outlast the last gate of its kind, as waiters do, or
-- precede the first.
local EVERY_KIND = { d = 1, b = 1, s = 1, t = 1, u = 1, r = 1, q = 1 }

-- gates_any reports whether there are gates at all; without them nothing of gate.lua costs a call. It needs `ng` loaded.
local function gates_any()
  return (call.st.ng or '') ~= ''
end

-- caps_version names the caps that there are, as `ng` counts them, their version, and that of the policy, with which caps of an older
-- release come; '' where there are none. What is dispatched without counting against one carries it: while it is the same, none
-- counts that job. It needs `pv` loaded, too.
local function caps_version()
  local counts = match(call.st.ng or '', '^[^|]*v%d+')
  return counts and string.gsub(counts, '[brs]%d+', '') .. '.' .. (call.st.pv or 0) or ''
end

-- gate: the one mechanism of pause, breaker, cap and rate. Names, in the order in which they are asked, and what `gates`
-- maps them to:
--   q:QUEUE, t:TENANT, u:TENANT:QUEUE, d:SERVICE, d:SERVICE+ACCOUNT   "limit|held|until|then|reason": at most `limit` jobs in ready
--                   streams, 0 is a pause, NO_SHARE shut too (share.lua); `until` (microseconds, 0 for ever) `then` is the
--                   limit, empty for none
--   t:*, u:*:QUEUE, d:*, d:SERVICE+*   the same for each that has none of its own, whose held is kept as "*|held"; so is that of a tenant whose record
--                   alone has a cap. A t:TENANT whose limit is that of its tier has .0 behind it (weight.lua)
--   b:SERVICE                   "limit|held|period": a breaker; only jobs dispatched in the period count
--   o:QUEUE         "SLOTS:CLASSES|held", SLOTS%:CLASSES of as many percent: slots that only the classes of these places, from 0, by
--                   commas, may take; with ~ before the colon others do while none of those waits. held are the jobs of the others
--   r:TENANT, s:SERVICE, s:SERVICE+ACCOUNT   "rate|burst|bucket": dispatches a second, in the units of bucket.lua
--   s:SERVICE+*                 the same for each account that has none of its own, whose bucket is account:SERVICE+ACCOUNT while it is not
--                   full, with a TTL; `accounts` is the SET of accounts at whose own gates somebody waits
-- A downstream is a service, or SERVICE+ACCOUNT: what is of all accounts, breaker, shelf and what is counted by downstream, goes by the service.
-- Lanes wait at h:SERVICE too, of which wake.lua tells; `shelves` is the SET of those services, `nh` how many.
-- `ng` says how many there are of each kind, so that kinds of which there are none cost nothing, and names the services
-- with a b: where these have been few since there was none, so that others cost nothing either: b1t20v7|api. With each cap that
-- is new (q, t, u, d, o) their version v rises; `gv` keeps it where there are none. Waiters
-- stand in gw:GATE|CLASS:QUEUE by their tags; gq:GATE names the CLASS:QUEUE that have some. `marks` maps a job that
-- was dispatched under a breaker to "period|when, by the breaker's clock|downstream"; `nm` counts them.
local DISPATCH = 1000000
local GATES_AT_ONCE = 1000 -- even, and below what unpack can return
local NO_GATES = {}
-- ill is the set of services with a b:, false where it is not known

-- service_of returns the service of a downstream: all of it where no account is named.
local function service_of(downstream)
  local at = string.find(downstream, '+', 1, true)
  return at and sub(downstream, 1, at - 1) or downstream
end

-- gate_kinds needs `ng` loaded.
local function gate_kinds()
  if not call.kinds then
    call.kinds = {}
    local counts, named, names = match(state_get('ng') or '', '^([^|]*)(|?)(.*)$')
    for kind, n in string.gmatch(counts, '(%a)(%d+)') do call.kinds[kind] = tonumber(n) end
    call.ill = (named ~= '' or not call.kinds.b) and {}
    for name in string.gmatch(names, '[^|]+') do call.ill[name] = true end
  end
  return call.kinds
end

-- gate_default names the gate of all that have none of their own.
local function gate_default(name)
  local kind = byte(name)
  if kind == 117 then return 'u:*' .. sub(name, string.find(name, ':', 3, true), -1) end
  if kind == 116 then return 't:*' end
  if kind == 100 or kind == 115 then
    local at = string.find(name, '+', 1, true)
    if at then return sub(name, 1, at) .. '*' end
    return kind == 100 and 'd:*' or nil
  end
end

local function gate_is_rate(name)
  local kind = byte(name)
  return kind == 114 or kind == 115
end

local gate

-- reserve_parse returns the gate o of what it says.
local function reserve_parse(spec, held)
  local slots, percent, lends, classes = match(spec, '^(%d+)(%%?)(~?):(.*)$')
  local g = { spec = spec, held = held, reserved = tonumber(slots), percent = percent ~= '', lends = lends ~= '', classes = {} }
  for c in string.gmatch(classes, '%d+') do g.classes[c + 1] = true end
  return g
end

-- account_rate returns the rate of an account that has none of its own, by that of each.
local ACCOUNT_KEPT = 60000 -- milliseconds for which its bucket is kept beyond the time that it needs to be full
local function account_rate(name, each)
  local stored = redis.call('GET', call.prefix .. 'account:' .. sub(name, 3))
  local level, stamp = bucket_settle(stored, each.rate, each.burst, 0, state_num('bt'))
  return { rate = each.rate, burst = each.burst, level = level, stamp = stamp, default = true }
end

local function account_write(name, g)
  local span = (g.burst - g.level) / g.rate
  redis.call('SET', call.prefix .. 'account:' .. sub(name, 3), bucket_text(g.level, g.stamp, span, g.rate), 'PX',
    format('%d', ceil(span / 1000) + ACCOUNT_KEPT))
end

-- gate_limited gives a cap the limit of a text.
local function gate_limited(g, limit)
  g.limit, g.by_tier = tonumber(limit), sub(limit, -2) == '.0'
end

-- gate_recorded returns what a record makes of the cap of a gate, nil for nothing.
local function gate_recorded(name, alone)
  if byte(name) ~= 116 or name == 't:*' or not gate_kinds().c then return nil end
  return recorded_cap(sub(name, 3), alone)
end

-- gate_parse returns the gate of a value, false for none: that of all where there is no value, or that of a record. late says that a record is to be asked when
-- somebody has to know how many units there are (gate_units): whether there is a gate the value tells.
local NO_CAP = 1000000
local function gate_parse(name, v, late)
  local limit, held, rest = '*', 0, nil
  late = late and v and byte(name) == 116 and name ~= 't:*' and gate_kinds().c and name or nil
  if v then limit, held, rest = match(v, '^([^|]*)|([^|]*)|?(.*)$') end
  if limit == '*' then
    if late then return { held = tonumber(held), default = true, late = late } end
    local recorded = gate_recorded(name, false)
    if recorded and recorded > 0 then return { limit = recorded, held = tonumber(held), default = true } end
    local default = gate_default(name)
    local g = default and default ~= name and gate(default)
    if g and g.burst then return account_rate(name, g) end
    return g and { limit = g.limit, held = tonumber(held), default = true } or false
  end
  if byte(name) == 111 then return reserve_parse(limit, tonumber(held)) end
  if gate_is_rate(name) then
    local rate, burst = tonumber(limit), tonumber(held)
    local level, stamp = bucket_settle(rest ~= '' and rest, rate, burst, 0, state_num('bt'))
    return { rate = rate, burst = burst, level = level, stamp = stamp }
  end
  local g = { held = tonumber(held), rest = rest, late = late }
  gate_limited(g, limit)
  if not late and sub(rest, 1, 2) == '0|' and g.limit > 0 then -- Neither a pause nor for a time.
    g.over = gate_recorded(name, not g.by_tier)
    if g.over == 0 then
      local all = gate('t:*')
      g.over = all and all.limit or NO_CAP
    end
  end
  return g
end

-- gate returns a gate, false for none.
function gate(name)
  local g = call.gates[name]
  if g == nil then
    g = gate_kinds()[sub(name, 1, 1)] and gate_parse(name, redis.call('HGET', keys.gates, name), true) or false
    call.gates[name] = g
  end
  return g
end

-- gates_there returns those of some gates that there are. It needs them loaded.
local function gates_there(names)
  local there = NO_GATES
  for _, name in ipairs(names) do
    if call.gates[name] then
      if there == NO_GATES then there = {} end
      there[#there + 1] = name
    end
  end
  return there
end

-- gate_units returns how many more may pass.
local gate_text
local function gate_units(g)
  if g.late then
    local known = gate_parse(g.late, gate_text(g)) or { limit = NO_CAP } -- A release before caps by records leaves such a row.
    g.limit, g.over, g.late = known.limit, known.over, nil
  end
  if g.burst then return floor(g.level / DISPATCH) end
  return (g.over or g.limit) - g.held
end

local function gate_closed(name)
  local g = gate(name)
  return g and gate_units(g) <= 0
end

-- tenant_gates and lane_gates name what stands before a tenant in a queue, and before a lane: gates of the kinds of which
-- there are any, or of EVERY_KIND (gate.lua). They are asked for each job, so `lane_names` keeps the latter.
function reset.gate() call.gates, call.gates_dirty, call.kinds, call.ill, call.lane_names = {}, {}, nil, nil, {} end

local function tenant_gates(tenant, queue, of)
  local k = of or gate_kinds()
  if not (k.t or k.u or k.r) then return NO_GATES end
  local names = {}
  if k.t then names[#names + 1] = 't:' .. tenant end
  if k.u then names[#names + 1] = 'u:' .. tenant .. ':' .. queue end
  if k.r then names[#names + 1] = 'r:' .. tenant end
  return names
end

local function lane_gates(downstream, of)
  if downstream == '' then return NO_GATES end
  local names = not of and call.lane_names[downstream]
  if names then return names end
  local k, service = of or gate_kinds(), service_of(downstream)
  names = {}
  if k.d then
    names[1] = 'd:' .. service
    if service ~= downstream then names[2] = 'd:' .. downstream end
  end
  if k.b and (of or not call.ill or call.ill[service]) then names[#names + 1] = 'b:' .. service end
  if k.s then
    names[#names + 1] = 's:' .. service
    if service ~= downstream then names[#names + 1] = 's:' .. downstream end
  end
  if not of then call.lane_names[downstream] = names end
  return names
end

-- gate_pass counts a dispatch under a gate that there is. It returns the period of a breaker.
local function gate_pass(name)
  local g = gate(name)
  call.gates_dirty[name] = true
  if g.burst then
    g.level = g.level - DISPATCH
  else
    g.held = g.held + 1
  end
  return byte(name) == 98 and g.rest or nil
end

function gate_text(g)
  if g.default and not g.burst then return format('*|%d', g.held) end
  if g.spec then return format('%s|%d', g.spec, g.held) end
  if g.burst then return format('%.17g|%d|%s', g.rate, g.burst, bucket_text(g.level, g.stamp, (g.burst - g.level) / g.rate, g.rate)) end
  return format('%d%s|%d|%s', g.limit, g.by_tier and '.0' or '', g.held, g.rest)
end

-- gate_again has a gate of its own go by what its record makes of it now.
local function gate_again(name)
  local g = call.gates[name]
  g.over, g.late = gate_parse(name, gate_text(g)).over, nil
end

local function gates_write()
  if not next(call.gates_dirty) then return end
  local texts, gone = {}, {}
  for name in pairs(call.gates_dirty) do
    local g = call.gates[name]
    if g and g.default and g.burst then
      account_write(name, g)
      if g.was_own then gone[#gone + 1] = name end
    elseif g and (g.held ~= 0 or not g.default) then
      texts[#texts + 1] = name
      texts[#texts + 1] = gate_text(g)
    else
      gone[#gone + 1] = name
    end
  end
  call.gates_dirty = {}
  for i = 1, #texts, GATES_AT_ONCE do redis.call('HSET', keys.gates, unpack(texts, i, math.min(#texts, i + GATES_AT_ONCE - 1))) end
  for i = 1, #gone, GATES_AT_ONCE do redis.call('HDEL', keys.gates, unpack(gone, i, math.min(#gone, i + GATES_AT_ONCE - 1))) end
end

local function gate_park(name, class, queue, tag, member)
  local line = class .. ':' .. queue
  redis.call('ZADD', call.prefix .. 'gw:' .. name .. '|' .. line, format('%.17g', tag), member)
  redis.call('SADD', call.prefix .. 'gq:' .. name, line)
  if byte(name) == 104 and redis.call('SADD', keys.shelves, sub(name, 3)) == 1 then state_add('nh', 1) end
  if match(name, '^[ds]:[^+]*%+') then redis.call('SADD', keys.accounts, sub(name, 3)) end
end

-- gate_tidy forgets a line of a gate whose last waiter has gone.
local function gate_tidy(name, line)
  if redis.call('EXISTS', call.prefix .. 'gw:' .. name .. '|' .. line) == 1 then return end
  redis.call('SREM', call.prefix .. 'gq:' .. name, line)
  if byte(name) == 104 and redis.call('EXISTS', call.prefix .. 'gq:' .. name) == 0 then
    state_add('nh', -redis.call('SREM', keys.shelves, sub(name, 3)))
  end
  if match(name, '^[ds]:[^+]*%+') then
    local account = sub(name, 3)
    if redis.call('EXISTS', call.prefix .. 'gq:s:' .. account, call.prefix .. 'gq:d:' .. account) == 0 then redis.call('SREM', keys.accounts, account) end
  end
end

-- gatesload: gates_load reads gates in one call, and where records give caps in another those of the tenants of which there is no value.
local function tenants_recorded(names)
  local whose = {}
  for _, name in ipairs(names) do
    if byte(name) == 116 and name ~= 't:*' then whose[#whose + 1] = sub(name, 3) end
  end
  if whose[1] then records_read(whose) end
end

local function gates_load(names)
  local k, fields, n = gate_kinds(), {}, 0
  for _, name in ipairs(names) do
    if call.gates[name] == nil and k[sub(name, 1, 1)] then
      call.gates[name], n = false, n + 1
      fields[n] = name
    end
  end
  if n == 0 then return end
  local values = redis.call('HMGET', keys.gates, unpack(fields))
  if k.c then
    local without = {}
    for i, name in ipairs(fields) do
      if not values[i] then without[#without + 1] = name end
    end
    tenants_recorded(without)
  end
  for i, name in ipairs(fields) do call.gates[name] = gate_parse(name, values[i], true) end
end

-- gateset: gates come and go.
-- gate_count needs `ng` loaded. It names at most NAMED downstreams with a b:. Of the kind v it says that a cap is new which is no gate's own.
local NAMED = 8
local function gate_count(name, n)
  local kind, parts, names = sub(name, 1, 1), {}, {}
  local left = (gate_kinds()[kind] or 0) + n
  call.kinds[kind], call.lane_names = left > 0 and left or nil, {}
  if n > 0 and string.find('qtudo', kind, 1, true) then call.kinds.v = (call.kinds.v or state_num('gv')) + n end
  if call.kinds.v and not (call.kinds.q or call.kinds.t or call.kinds.u or call.kinds.d or call.kinds.o) then
    state_set('gv', call.kinds.v)
    call.kinds.v = nil
  end
  for k, count in pairs(call.kinds) do parts[#parts + 1] = format('%s%d', k, count) end
  table.sort(parts)
  if kind == 'b' then
    if left == 0 then call.ill = {} end
    if left > NAMED then call.ill = false end
    if call.ill then call.ill[sub(name, 3)] = n > 0 or nil end
  end
  for downstream in pairs(call.kinds.b and call.ill or {}) do names[#names + 1] = '|' .. downstream end
  table.sort(names)
  state_set('ng', #parts > 0 and table.concat(parts) .. table.concat(names) or false)
end

-- gate_remove takes a gate away. Where there is one for all that have none of their own, that one counts on.
local function gate_remove(name)
  local g, default = gate(name), gate_default(name)
  if not g or g.default then return end
  gate_count(name, -1)
  local all = default and default ~= name and gate(default)
  if all and all.burst then
    call.gates[name] = { rate = all.rate, burst = all.burst, level = math.min(g.level, all.burst), stamp = state_num('bt'), default = true, was_own = true }
  else
    call.gates[name] = g.held and gate_parse(name, format('*|%d', g.held)) or false
  end
  call.gates_dirty[name] = true
end

-- capnames: the caps that a job in a ready stream counts against, of the kinds of which there are any or of EVERY_KIND.
local function cap_names(queue, tenant, downstream, of)
  local k, names = of or gate_kinds(), {}
  if k.q then names[#names + 1] = 'q:' .. queue end
  if k.t then names[#names + 1] = 't:' .. tenant end
  if k.u then names[#names + 1] = 'u:' .. tenant .. ':' .. queue end
  if k.d and downstream ~= '' then
    local service = service_of(downstream)
    names[#names + 1] = 'd:' .. service
    if service ~= downstream then names[#names + 1] = 'd:' .. downstream end
  end
  return names
end

-- counted_names names these, and the slots of a queue that are kept from some classes.
local function counted_names(queue, tenant, downstream)
  local names = cap_names(queue, tenant, downstream)
  if gate_kinds().o then names[#names + 1] = 'o:' .. queue end
  return names
end

-- gates_stand reports whether one of some gates is there. One command asks for them and for those of all that have none of their own.
local function gates_stand(names)
  local all = {}
  for _, name in ipairs(names) do all[#all + 1] = gate_default(name) end
  for _, name in ipairs(names) do all[#all + 1] = name end
  gates_load(all)
  return gates_there(names) ~= NO_GATES
end

-- reserve: slots of a queue that only some classes may take. The other classes are counted, and fill skips one of them while they have all
-- the others.

-- reserve_before returns the gate o that a job of a class, from 1, counts against; nothing where there is none.
local function reserve_before(queue, c)
  local g = gate_kinds().o and gate('o:' .. queue)
  return g and not g.classes[c] and g or nil
end

-- reserve_taken returns the gate o of a class that may take no slot more, unless it is lent one. Of the slots of all pools that serve the
-- queue, and as many as its own cap lets it have, one is left to the others at least.
local function reserve_taken(queue, c)
  local g, slots = reserve_before(queue, c), 0
  if not g then return nil end
  for id in string.gmatch(state_get('pools:' .. queue) or '', '%S+') do
    local pool = pool_open(id)
    slots = slots + (pool and pool.slots or 0)
  end
  local cap = gate_kinds().q and gate('q:' .. queue)
  if cap and cap.limit > 0 then slots = math.min(slots, cap.limit) end
  local kept = g.percent and math.ceil(slots * g.reserved / 100) or g.reserved
  return g.held >= math.max(1, slots - kept) and g or nil
end

-- paused: paused_then changes the cap that a pause leaves behind.
local function paused_then(g, limit)
  local until_us, _, reason = match(g.rest, '^(%d+)|([^|]*)|(.*)$')
  g.rest = until_us .. '|' .. limit .. '|' .. reason
end

-- suspended: names under which nothing is admitted, HASH name → until|reason, microseconds, 0 for ever. Names are those of
-- the gates of a queue, a tenant, a tenant in a queue. `np` counts them.

-- recapped: what becomes of gates where records, or the caps of tiers, say something else of caps from now on (weight.lua). Who has a cap since has held what is in
-- ready streams; that is counted, so what was dispatched without counting counts from now on, too. Nobody else's gate is looked at.

-- tiers_named reports whether records name tiers.
local function tiers_named() return match(state_get('rt') or '', '[^;]=') ~= nil end

-- caps_recorded has `ng` say whether records give caps.
local function caps_recorded()
  local gives, told = tonumber(state_get('rm') or 0) > 0 or state_get('tc') and tiers_named(), gate_kinds().c
  if (not gives) == (not told) then return end
  gate_count('c', gives and 1 or -1)
  gate_count('t', gives and 1 or -1)
end

-- entries_of counts the entries of a tenant in all ready streams.
local function entries_of(name)
  local own, n = sub(name, 3) .. ':', 0
  for id in string.gmatch(state_get('pools') or '', '%S+') do
    for _, e in ipairs(redis.call('XRANGE', call.prefix .. 'ready:' .. id, '-', '+')) do
      if sub(e[2][2], 1, #own) == own then n = n + 1 end
    end
  end
  return n
end

-- gate_recapped brings a gate t:TENANT, which was another before, false for none, to what is so now. counts has how many entries of ready streams are under
-- each, where somebody has counted them.
local function gate_recapped(name, before, counts)
  local after = gate_kinds().t and gate_parse(name, before and gate_text(before)) or false
  if after and not before then
    after.held = counts and counts[name] or not counts and entries_of(name) or 0
    if after.held > 0 then gate_count('v', 1) end
  end
  call.gates[name] = after
  if before and not after or after and not before and after.held > 0 then call.gates_dirty[name] = true end
end

-- record_caps reports whether a record that takes the place of another, both by their JSON, empty for none, may change its tenant's cap.
local function record_caps(before, after)
  local tier_before, _, cap_before = record_shares(before, 1)
  local tier, _, cap = record_shares(after, 1)
  return cap ~= cap_before or tier ~= tier_before and state_get('tc') and true
end

-- record_recapped follows such a change, which has been made and counted (weight.lua). It needs `ng` loaded, and the gate as it was before.
local function record_recapped(tenant, gate_before, before, after)
  local had, has = select(3, record_shares(before, 1)), select(3, record_shares(after, 1))
  if (not had) ~= (not has) then
    local n = state_num('rm') + (has and 1 or -1)
    state_set('rm', n > 0 and n)
  end
  caps_recorded()
  gate_recapped('t:' .. tenant, gate_before)
end

-- rerated: rates of dispatches that tenants have by their records. While a record says something of one, `dispatch` (HASH, `rd` counts it) has TENANT → RECORD;POLICY:
-- what the record says, rate|burst as a gate has it or - for no rate, which is in force as the gate r:TENANT, and what the policy says, empty for none, which an edit of the policy
-- changes there and which is in force once more when the record says nothing. So a dispatch asks for no record, and is under such a rate as under one of the policy.

-- rates_recorded is how many there are. Not by state_num, which would have a field that is to go be a 0.
local function rates_recorded() return tonumber(state_get('rd') or 0) end

-- rate_put makes a rate what a text says, or takes it away. Tokens that are there stay, up to the new burst.
local function rate_put(name, text)
  local g = gate(name)
  if not text then return gate_remove(name) end
  local rate, burst = match(text, '^([^|]+)|(%d+)$')
  if not g or g.default then
    gate_count(name, 1)
    g = { level = g and g.level < g.burst and g.level or tonumber(burst) } -- An account whose rate was that of each and full has a full one.
    call.gates[name] = g
  end
  g.rate, g.burst = tonumber(rate), tonumber(burst)
  g.level, g.stamp = math.min(g.level, g.burst), state_num('bt')
end

-- rate_is reports whether a gate, false for none, has the rate of a text, which may be none.
local function rate_is(g, text)
  local rate, burst = match(text, '^([^|]+)|(%d+)$')
  return g and rate and g.rate == tonumber(rate) and g.burst == tonumber(burst) or not g and not rate
end

-- record_rerated puts in force what the record of a tenant says of its dispatches from now on, empty for nothing, and reports whether that is another rate, which who
-- waits for it is then to hear. It asks nothing while no record says, or said, something.
local function record_rerated(tenant, said)
  local n, name = rates_recorded(), 'r:' .. tenant
  local row = n > 0 and redis.call('HGET', keys.dispatch, tenant)
  local before, of_policy = match(row or ';', '^([^;]*);(.*)$')
  if before == said then return false end
  state_get('ng')
  local g = gate(name)
  if not rate_is(g, before) then of_policy = g and format('%.17g|%d', g.rate, g.burst) or '' end -- Also where an edit of the policy by an older release has put that there.
  if said == '' then
    redis.call('HDEL', keys.dispatch, tenant)
    state_set('rd', n > 1 and n - 1)
    rate_put(name, of_policy ~= '' and of_policy)
  else
    redis.call('HSET', keys.dispatch, tenant, said .. ';' .. of_policy)
    if not row then state_set('rd', n + 1) end
    rate_put(name, said ~= '-' and said)
  end
  call.gates_dirty[name] = true
  return true
end

-- rate_aside notes what the policy says of a rate, false for nothing, where a record says something else, and reports whether one does.
local function rate_aside(name, text)
  if byte(name) ~= 114 or rates_recorded() == 0 then return false end
  local tenant = sub(name, 3)
  local row = redis.call('HGET', keys.dispatch, tenant)
  if row then redis.call('HSET', keys.dispatch, tenant, match(row, '^[^;]*;') .. (text or '')) end
  return row and true or false
end
