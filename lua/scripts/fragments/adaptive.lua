-- adaptive: limits that move by themselves between bounds of the policy. `adaptive` maps the gate of each to ADAPTIVE below, joined by |,
-- and behind them who froze it and why, as a hold has it (audit.lua), or nothing. `own` is the policy's limit, `limit` what is in force
-- instead: over all partitions, where several share it. `number` grows with each look of the loop, `told` is the limit that the audit last
-- told, at told_at. `na` says how many there are.
local ADAPTIVE_WORDS = 3
local ADAPTIVE = {
  'name', 'cause', 'why', 'own', 'least', 'most', 'limit', 'number', 'at', 'before', 'changed', 'raised', 'lowered', 'told', 'told_at',
}

-- adaptive_read returns what is kept of a gate, nil for nothing.
local function adaptive_read(gate_name)
  local text = redis.call('HGET', keys.adaptive, gate_name)
  if not text then return nil end
  local a, at = {}, 1
  for i, field in ipairs(ADAPTIVE) do
    local stop = string.find(text, '|', at, true)
    a[field] = i > ADAPTIVE_WORDS and tonumber(sub(text, at, stop - 1)) or sub(text, at, stop - 1)
    at = stop + 1
  end
  a.frozen = sub(text, at)
  return a
end

local function adaptive_write(gate_name, a)
  local parts = {}
  for i, field in ipairs(ADAPTIVE) do parts[i] = i > ADAPTIVE_WORDS and format('%d', a[field]) or a[field] end
  parts[#parts + 1] = a.frozen
  redis.call('HSET', keys.adaptive, gate_name, table.concat(parts, '|'))
end

local function adaptive_clamp(a, limit) return math.max(a.least, math.min(limit, a.most)) end

-- adaptive_want notes what the policy says of a gate, own~least~most/partitions~name of one that moves by itself, and returns what is to be
-- in force, as for any other: of one that moves what it was, between its bounds. It needs `na` loaded.
local function adaptive_want(gate_name, text)
  local own, least, most, parts, name = match(text or '', '^(%d+)~(%d+)~(%d+)(/?%d*)~(.+)$')
  if not own then
    local left = state_num('na')
    if left > 0 then
      left = left - redis.call('HDEL', keys.adaptive, gate_name)
      state_set('na', left > 0 and left)
    end
    return text
  end
  local a = state_num('na') > 0 and adaptive_read(gate_name)
  if not a then
    a = { cause = '', why = '', limit = tonumber(own), number = 0, at = 0, before = 0, changed = 0, raised = 0, lowered = 0,
      told = tonumber(own), told_at = 0, frozen = '' }
    state_add('na', 1)
  end
  a.name, a.own, a.least, a.most = name, tonumber(own), tonumber(least), tonumber(most)
  a.limit = adaptive_clamp(a, a.limit)
  adaptive_write(gate_name, a)
  return format('%d', a.limit) .. parts
end
