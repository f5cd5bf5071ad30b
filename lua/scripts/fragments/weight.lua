-- weight: how much of a class is a tenant's. `weights` (HASH, `nw`) has CLASS:TENANT → what the policy has for it, with .0 behind it where that is the
-- weight of its tier, and CLASS: → that of everybody else. `tw:CLASS` of the state has the weights of tiers that differ from that,
-- ;TIER=WEIGHT;TIER=WEIGHT. They are for tenants whose record (path.lua) names a tier: its JSON begins with {"tier":"TIER","priority_weights":{…}, or with
-- what it has of these. A record's weight goes before the policy's own of its tenant, that before the weight of the record's tier, and that before the
-- weight of the policy's tier. `rt` counts records by tier, TIER=N;TIER=N, those with weights alone under no name; while there are any, `nw` is
-- higher by RECORDED, so that nobody asks for records where none says something.
local RECORDED = 16777216
local function records_weigh() return state_num('nw') >= RECORDED end

-- record_shares returns the tier, the weights and the cap that the JSON of a record has from a place on, nil for none.
local function record_shares(text, from)
  local tier, at = match(text, '^{"tier":"([^"]*)"()', from)
  local weights, to = match(text, '^[{,]"priority_weights":(%b{})()', at or from)
  return tier, weights, tonumber((match(text, '^[{,]"max_running":(%d+)', to or at or from)))
end

-- records_read returns what is stored of tenants by their names, false for nothing. It asks once a call for each.
function reset.weight() call.own_records = {} end
local function records_read(whose)
  local known, asked = call.own_records, {}
  for _, tenant in ipairs(whose) do
    if known[tenant] == nil then known[tenant], asked[#asked + 1] = false, tenant end
  end
  if asked[1] then
    for i, stored in ipairs(redis.call('HMGET', keys.records, unpack(asked))) do known[asked[i]] = stored end
  end
  return known
end

-- of_tier returns what a text ;TIER=N;TIER=N has of a tier, nil for nothing.
local function of_tier(text, tier)
  local name = ';' .. tier .. '='
  local at = string.find(text, name, 1, true)
  return at and tonumber(match(text, '^%d+', at + #name))
end

-- weight_of returns the weight of a tenant: by what is stored of its record, false for none, of what the policy has for it, and of everybody else's.
local function weight_of(stored, class, own, every)
  local tier, weights
  if stored then tier, weights = record_shares(stored, 8) end
  local name = '"' .. class .. '":'
  local at = weights and string.find(weights, name, 1, true)
  if at then return tonumber(match(weights, '^%d+', at + #name)) end
  if tier and not (own and match(own, '^%d+$')) then
    return of_tier(state_get('tw:' .. class) or '', tier) or every
  end
  return tonumber(own or every) or 1
end

-- weights_of returns the weights of several tenants in a class, and everybody else's, where `nw` is not 0.
local function weights_of(class, whose)
  local n, fields, weights = #whose, {}, {}
  for i = 1, n do fields[i] = class .. ':' .. whose[i] end
  fields[n + 1] = class .. ':'
  local stored = redis.call('HMGET', keys.weights, unpack(fields))
  local records = records_weigh() and records_read(whose)
  local every = tonumber(stored[n + 1] or 1) or 1
  for i = 1, n do weights[i] = weight_of(records and records[whose[i]], class, stored[i], every) end
  return weights, every
end

-- recorded_tier returns the tier that a tenant's record names, nil for none.
local function recorded_tier(tenant)
  local stored = records_weigh() and redis.call('HGET', keys.records, tenant)
  return stored and record_shares(stored, 8) or nil
end

-- record_kind returns under what `rt` counts a record by its JSON, nil for one that it does not count.
local function record_kind(text)
  local tier, weights = record_shares(text, 1)
  return tier or weights and '' or nil
end

-- record_counted counts a record that took the place of another, both by their JSON, empty for none, and reports whether its tier is another.
local function record_counted(before, after)
  local from, to = record_kind(before), record_kind(after)
  if from == to then return false end
  local counts, names, all = {}, {}, {}
  for tier, n in string.gmatch(state_get('rt') or '', '([^;=]*)=(%d+)') do counts[tier] = tonumber(n) end
  if from then counts[from] = (counts[from] or 1) - 1 end
  if to then counts[to] = (counts[to] or 0) + 1 end
  for tier, n in pairs(counts) do
    if n > 0 then names[#names + 1] = tier end
  end
  table.sort(names)
  for i, tier in ipairs(names) do all[i] = format('%s=%d', tier, counts[tier]) end
  state_set('rt', #all > 0 and table.concat(all, ';'))
  state_set('nw', state_num('nw') % RECORDED + (#all > 0 and RECORDED or 0))
  return (from or '') ~= (to or '')
end

-- caps: what records of tenants say of caps (gate.lua). A record's max_running goes before the policy's own cap of its tenant, that before the cap
-- of the record's tier, and that before the cap of the policy's tier, which a gate t:TENANT has with .0 behind it, and before t:*. `tc` of the state has
-- the caps of tiers that differ from t:*, ;TIER=CAP;TIER=CAP, and `rm` counts records that have a cap of their own. While one of them
-- says something `ng` counts that as c1, and as one gate t: else nobody asks for a record. An edit of a tier writes `tc` alone, whatever the number of records.

-- recorded_cap returns what the record of a tenant makes of its cap, nil where it says nothing, 0 for what t:* says. alone says that the policy has a cap for
-- the tenant alone.
local function recorded_cap(tenant, alone)
  local stored = records_read({ tenant })[tenant]
  if not stored then return nil end
  local tier, _, cap = record_shares(stored, 8)
  if cap or alone or not tier then return cap end
  local tiers = state_get('tc')
  return tiers and (of_tier(tiers, tier) or 0) or nil
end
