-- @include everykind
-- @include capnames
-- @include record
-- held: what there is before a cap that is new. entries_count counts the entries of all ready streams by cap.
local function entries_count()
  local counts = {}
  for id in string.gmatch(state_get('pools') or '', '%S+') do
    for _, e in ipairs(redis.call('XRANGE', call.prefix .. 'ready:' .. id, '-', '+')) do
      local tenant = key_split(e[2][2])
      local r = record_read(e[2][4])
      for _, name in ipairs(cap_names(r.queue, tenant, sub(r.lane, 2), EVERY_KIND)) do counts[name] = (counts[name] or 0) + 1 end
    end
  end
  return counts
end
