-- state: the partition's one state hash, read in one HMGET and written in one HSET a call. Numbers are kept as
-- Lua numbers and written with %d where they are integers (below 2^53), else with %.17g: both are exact.
-- `core` holds the numbers that every call touches as doubles, the lowest byte first, in the order of CORE, which is that of
-- package keyspace. Data of a version below PACKED_DATA has each as a text in a field of its own, and is kept so until its version is raised;
-- from then on the first call that writes packs them. A release before that would go on with texts that nobody keeps: it finds
-- FENCE in `t`, of which it makes no number, and breaks off before it has written anything.
-- `partitions` says how many the deployment has, absent for one. Who takes it for another number is refused before it has
-- written anything: a migration may have moved what it looks for. layout.go puts another number there for others than one.
local format, match = string.format, string.match
-- go test ./internal/keyspace -run TestTheScriptsPackTheCore -update
local CORE = {
  't', 'bt', 'dc', 'step', 'seq', 'gen',
  'en', 'eo', 'rot', 'dw', 'accepted', 'left:completed',
  'pat', 'rf', 'ma', 'mf', 'nm', 'nh',
  'nw', 'nc', 'nl', 'nb', 'nk', 'np',
  'wl',
}
local CORE_AT = {
  ['t'] = 1, ['bt'] = 2, ['dc'] = 3, ['step'] = 4, ['seq'] = 5, ['gen'] = 6,
  ['en'] = 7, ['eo'] = 8, ['rot'] = 9, ['dw'] = 10, ['accepted'] = 11, ['left:completed'] = 12,
  ['pat'] = 13, ['rf'] = 14, ['ma'] = 15, ['mf'] = 16, ['nm'] = 17, ['nh'] = 18,
  ['nw'] = 19, ['nc'] = 20, ['nl'] = 21, ['nb'] = 22, ['nk'] = 23, ['np'] = 24,
  ['wl'] = 25,
}
local CORE_SIZE, CORE_FORMAT = 25, '<ddddddddddddddddddddddddd'
-- end
local PACKED_DATA, FENCE = 3, 'packed'
-- core_text is the core as it was read, core_changed up to which of its numbers it has changed.
function reset.state() call.st, call.dirty, call.core, call.core_text, call.core_changed, call.core_texts = {}, {}, nil, nil, 0, nil end

-- core_read reads the numbers of the core from its text, false for none: then they are texts, or nobody has begun.
local function core_read(text)
  if text then
    call.core, call.core_text = { struct_unpack(CORE_FORMAT, text) }, text
    return
  end
  local values = redis.call('HMGET', call.state, 'data', unpack(CORE))
  local core, texts = {}, {}
  for i = 1, CORE_SIZE do
    core[i] = tonumber(values[i + 1] or 0)
    texts[i] = core[i]
  end
  call.core, call.core_texts = core, texts
  if tonumber(values[1] or (values[2] and 0 or PACKED_DATA)) >= PACKED_DATA then call.core_texts = 'pack' end
end

local function core_open()
  local core = call.core
  if not core then
    core_read(redis.call('HGET', call.state, 'core'))
    core = call.core
  end
  return core
end

local function state_load(fields)
  local n = #fields
  fields[n + 1], fields[n + 2] = 'partitions', 'core'
  local values, st = redis.call('HMGET', call.state, unpack(fields)), call.st
  for i = 1, n + 1 do st[fields[i]] = values[i] end
  local PARTITIONS = '1'
  local stored = st.partitions or '1'
  if stored ~= PARTITIONS then error('LAYOUT ' .. stored .. ' ') end
  core_read(values[n + 2])
end

local function state_get(field)
  local v = call.st[field]
  if v == nil then
    v = redis.call('HGET', call.state, field)
    call.st[field] = v
  end
  return v
end

local function state_num(field)
  local at = CORE_AT[field]
  if at then return (call.core or core_open())[at] end
  local v = tonumber(state_get(field) or 0)
  call.st[field] = v
  return v
end

-- state_set sets a field; false for none, which is 0 in the core.
local function state_set(field, v)
  local at = CORE_AT[field]
  if at then
    (call.core or core_open())[at] = v or 0
    if at > call.core_changed then call.core_changed = at end
    return
  end
  call.st[field] = v
  call.dirty[field] = true
end

local function state_add(field, n)
  local v = state_num(field) + n
  state_set(field, v)
  return v
end

-- state_packed reports whether numbers are packed in this data, or from this call on.
local function state_packed()
  core_open()
  return not call.core_texts or call.core_texts == 'pack'
end

local function number_text(v)
  return format(v % 1 == 0 and '%d' or '%.17g', v)
end

-- core_write appends the core, or those of its texts that changed, to what is written, and what it takes the place of to what goes.
local function core_write(args, gone)
  local n, texts, changed, text = #args, call.core_texts, call.core_changed, call.core_text
  call.core_changed = 0
  if texts and texts ~= 'pack' then
    for i = 1, CORE_SIZE do
      if call.core[i] ~= texts[i] then
        args[n + 1], args[n + 2] = CORE[i], number_text(call.core[i])
        n, texts[i] = n + 2, call.core[i]
      end
    end
    return
  end
  if not text then changed = CORE_SIZE end
  local packed = struct_pack(sub(CORE_FORMAT, 1, changed + 1), unpack(call.core, 1, changed))
  if changed < CORE_SIZE then packed = packed .. sub(text, 8 * changed + 1) end
  args[n + 1], args[n + 2], call.core_text = 'core', packed, packed
  if texts then
    args[n + 3], args[n + 4] = CORE[1], FENCE
    for i = 2, CORE_SIZE do gone[#gone + 1] = CORE[i] end
    call.core_texts = nil
  end
end

-- state_write writes what changed, in one HSET of as many as FIELDS_AT_ONCE: an edit of the policy may have thousands. A field set to false is
-- removed.
local FIELDS_AT_ONCE = 1000
local function state_write()
  local args, gone = {}, {}
  for field in pairs(call.dirty) do
    local v = call.st[field]
    if v == false then
      gone[#gone + 1] = field
    else
      args[#args + 1] = field
      args[#args + 1] = type(v) == 'number' and number_text(v) or v
    end
  end
  call.dirty = {}
  if call.core_changed > 0 then core_write(args, gone) end
  for i = 1, #args, 2 * FIELDS_AT_ONCE do redis.call('HSET', call.state, unpack(args, i, math.min(#args, i + 2 * FIELDS_AT_ONCE - 1))) end
  for i = 1, #gone, FIELDS_AT_ONCE do redis.call('HDEL', call.state, unpack(gone, i, math.min(#gone, i + FIELDS_AT_ONCE - 1))) end
end
