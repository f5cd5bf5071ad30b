-- @include state
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
