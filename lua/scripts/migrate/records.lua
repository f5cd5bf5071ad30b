-- records takes over records of tenants from another partition, as they are stored, or takes those away of tenants that are there now.
-- KEYS[1] state  hash; the partition's other keys share its hash tag and are named after it
-- ARGV[1] ...  tenant, what is stored of its record, "" to take it away, and what that says of dispatches, as `dispatch` has it, "" for nothing
-- Reply {"carried"}
-- Never counts a record twice: one that is there already is taken for the one before it. Never wakes who waits for another cap or rate itself: that is a timer's, which is due.
-- @flag allow-oom
-- @relief
local function waiters_due(name)
  if redis.call('EXISTS', call.prefix .. 'gq:' .. name) == 1 then due_add(keys.due, state_num('t'), 'g' .. name) end
end

function scripts.records(KEYS, ARGV)
  local STATE, TENANTS_AT, TENANT_SIZE = KEYS[1], 1, 3

  state_load({ 'rt', 'tc', 'rd' })
  for i = TENANTS_AT, #ARGV, TENANT_SIZE do
    local tenant, stored, dispatches = ARGV[i], ARGV[i + 1], ARGV[i + 2]
    local was = redis.call('HGET', keys.records, tenant) or ''
    local before, after = sub(was, 8), sub(stored, 8)
    local recaps, name, gate_before = record_caps(before, after), 't:' .. tenant, nil
    if recaps then
      state_get('ng')
      gate_before = gate(name)
    end
    record_counted(before, after)
    record_bounded(before, after)
    call.own_records[tenant] = stored ~= '' and stored
    if stored == '' then
      redis.call('HDEL', keys.records, tenant)
    else
      redis.call('HSET', keys.records, tenant, stored)
    end
    local rerates = record_rerated(tenant, dispatches)
    if recaps then record_recapped(tenant, gate_before, before, after) end
    if recaps then waiters_due(name) end
    if rerates then waiters_due('r:' .. tenant) end
    for _, in_queue in ipairs(record_queue_caps(tenant, before, after)) do waiters_due(in_queue) end
  end
  gates_write()
  state_write()
  return { 'carried' }
end
