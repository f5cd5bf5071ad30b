-- tenant_record stores what a tenant has of its own beside the policy, or takes it away, and tells the audit who did.
-- KEYS[1] state  hash; the partition's other keys share its hash tag and are named after it
-- ARGV[1] now  microseconds, "" for Redis TIME
-- ARGV[2] version  of the policy beside which the record was checked
-- ARGV[3] tenant  whose it is
-- ARGV[4] expected  version of the record that there is, 1 for none, 0 for any
-- ARGV[5] record  JSON, "" to take it away
-- ARGV[6] full  milliseconds in which the slowest bucket fills, by what is in force from now on
-- ARGV[7] changes  JSON, for the audit; "" where it is one of many that are told as one act
-- ARGV[8] by  who does it and why, as fragments/audit.lua reads it
-- ARGV[9] bounded  "1" where bounds differ by tier: jobs that entered before their tenant had another are then to be counted (recount.lua), as they are in any case where the record bounds depth at another place
-- ARGV[10] dispatch  what the record says of dispatches: rate|burst as a gate has it, "-" for no rate; absent for nothing
-- Reply {"stale", version of the policy}, {"conflict", version of the record} or {"stored" | "removed" | "kept", version of the record}; kept is
--   one that says the same already
-- Never takes away what a job has: a weight, a cap and a rate of dispatches count from the tenant's next dispatch, a bound from its next job on. Never changes what a bucket holds: time until now counts as a change of the policy has it, by what was and what is.
-- @flag allow-oom
-- @relief
function scripts.tenant_record(KEYS, ARGV)
  local STATE, NOW, VERSION, TENANT, EXPECTED, RECORD = KEYS[1], ARGV[1], ARGV[2], ARGV[3], tonumber(ARGV[4]), ARGV[5]
  local FULL, CHANGES, BY, BOUNDED, DISPATCHES = ARGV[6], ARGV[7], ARGV[8], ARGV[9], ARGV[10] or ''
  local now, by = now_us(NOW), by_read(BY)

  clock_begin(now, { 'pv', 'rv', 'rt', 'tc', 'rd' })
  local stale = stale_reply(VERSION)
  if stale then return stale end
  local stored = redis.call('HGET', keys.records, TENANT)
  local was, version = record_version(stored), RECORD_NONE
  if EXPECTED > 0 and EXPECTED ~= was then return { 'conflict', format('%d', was) } end
  local before = stored and sub(stored, 8) or ''
  if before == RECORD then return { 'kept', format('%d', was) } end
  local recaps, gate_before = record_caps(before, RECORD), nil
  if recaps then
    state_get('ng')
    state_get('cfg:*')
    gate_before = gate('t:' .. TENANT)
  end
  local latest = state_num('rv')
  local edit = math.max(floor(state_num('bt')), latest + 1) -- That of no other partition either, from where a tenant may move.
  edits_add(edit, latest, TENANT)
  if RECORD == '' then
    redis.call('HDEL', keys.records, TENANT)
    call.own_records[TENANT] = false
  else
    version = edit
    call.own_records[TENANT] = struct_pack(RECORD_VERSION, version) .. RECORD
    redis.call('HSET', keys.records, TENANT, call.own_records[TENANT])
  end
  local tiers, places = record_counted(before, RECORD), record_bounded(before, RECORD)
  if tiers and BOUNDED == '1' or places then state_set('pr', format('record %d', edit)) end
  if tiers or record_bounds(before) or record_bounds(RECORD) then spilled_look(TENANT, now) end
  local key = call.prefix .. 'b:' .. TENANT
  if redis.call('EXISTS', key) == 1 then
    redis.call('HSET', key, '~', format('%d', state_num('bt')))
    redis.call('PEXPIREAT', key, ceil(now / 1000) + FULL, 'GT') -- what was to be full by then may fill slower now
  end
  if CHANGES == '' then
    audit_act(now, by, 'records', 1)
  elseif by.act ~= '' then
    audit_add({
      'at', format('%d', now), 'action', by.action, 'name', 't:' .. TENANT, 'n', '0', 'for', '0', 'author', by.author, 'reason', by.reason,
      'act', by.act, 'from', format('%d', was), 'to', format('%d', version), 'changes', CHANGES,
    })
  end
  local rerates = record_rerated(TENANT, DISPATCHES)
  if recaps then
    record_recapped(TENANT, gate_before, before, RECORD)
    call.freed['t:' .. TENANT] = true
  end
  if rerates then call.freed['r:' .. TENANT] = true end
  local in_queues = record_queue_caps(TENANT, before, RECORD)
  for _, name in ipairs(in_queues) do call.freed[name] = true end
  if recaps or rerates or in_queues[1] then
    freed_wake(now)
    fill(now)
  else
    state_write()
  end
  return { RECORD == '' and 'removed' or 'stored', format('%d', version) }
end
