-- state: the partition's one state hash, read in one HMGET and written in one HSET a call. Numbers are kept as
-- Lua numbers and written with %d where they are integers (below 2^53), else with %.17g: both are exact.
-- `partitions` says how many the deployment has, absent for one. Who takes it for another number is refused before it has
-- written anything: a migration may have moved what it looks for. layout.go puts another number there for others than one.
local format, match = string.format, string.match
function reset.state() call.st, call.dirty = {}, {} end

local function state_load(fields)
  fields[#fields + 1] = 'partitions'
  local values = redis.call('HMGET', call.state, unpack(fields))
  for i = 1, #fields do call.st[fields[i]] = values[i] end
  local PARTITIONS = '1'
  local stored = call.st.partitions or '1'
  if stored ~= PARTITIONS then error('LAYOUT ' .. stored .. ' ') end
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
  local v = tonumber(state_get(field) or 0)
  call.st[field] = v
  return v
end

local function state_set(field, v)
  call.st[field] = v
  call.dirty[field] = true
end

local function state_add(field, n)
  local v = state_num(field) + n
  state_set(field, v)
  return v
end

-- state_write writes what changed, in one HSET. A field set to false is removed.
local function state_write()
  local args, gone = {}, {}
  for field in pairs(call.dirty) do
    local v = call.st[field]
    if v == false then
      gone[#gone + 1] = field
    else
      args[#args + 1] = field
      if type(v) == 'number' then v = format(v % 1 == 0 and '%d' or '%.17g', v) end
      args[#args + 1] = v
    end
  end
  call.dirty = {}
  if #args > 0 then redis.call('HSET', call.state, unpack(args)) end
  if #gone > 0 then redis.call('HDEL', call.state, unpack(gone)) end
end
