-- unbalanced names bounds over all partitions whose shares are to be looked at: more is wanted here than there is, the
-- share is not the even one, or less than it is in force.
-- KEYS[1] state  hash; the partition's other keys share its hash tag and are named after it
-- ARGV[1] now  microseconds, "" for Redis TIME
-- ARGV[2] cursor  of the last reply, "0" to begin anew
-- Reply {cursor, microseconds since shares were last looked at, -1 for never, owner of that ballot, names}
-- Never writes, or looks at more bounds than some PAGE.
-- share_is_short reports whether less of a cap is in force than there may be, as after an edit that raised it.
local function share_is_short(name, s)
  return not gate_is_rate(name) and (share_in_force(gate(name)) or share_cap(s)) < share_cap(s)
end

function scripts.unbalanced(KEYS, ARGV)
  local STATE, NOW, CURSOR = KEYS[1], ARGV[1], ARGV[2]
  local PAGE = 200
  local now = now_us(NOW)

  state_load({ 'ng', 'gb', 'gbo', 'gm', 'sb' })
  state_set('bt', bucket_time(now)) -- It is never written.
  local owner, looked = match(state_get('sb') or '', '^%d+|([^|]*)|(%d+)$')
  local found = redis.call('HSCAN', keys.shares, CURSOR, 'COUNT', PAGE)
  local out, names = { found[1], looked and format('%d', state_num('bt') - looked) or '-1', owner or '' }, {}
  for i = 1, #found[2], 2 do names[#names + 1] = found[2][i] end
  for i = 1, #names, GATES_AT_ONCE do gates_load({ unpack(names, i, math.min(#names, i + GATES_AT_ONCE - 1)) }) end
  for i, name in ipairs(names) do
    local s = share_parse(found[2][2 * i])
    if not share_is_even(s) or s.whole ~= '' and (gate_hunger(name) ~= '' or share_is_short(name, s)) then out[#out + 1] = name end
  end
  if CURSOR == '0' and (tonumber(state_get('gm') or 1) ~= 1 or hunger('global') ~= '') then out[#out + 1] = 'global' end
  return out
end
