-- records takes over records of tenants from another partition, as they are stored, or takes those away of tenants that are there now.
-- KEYS[1] state  hash; the partition's other keys share its hash tag and are named after it
-- ARGV[1] ...  tenant, then what is stored of its record, "" to take it away
-- Reply {"carried"}
-- Never counts a record twice: one that is there already is taken for the one before it.
-- @flag allow-oom
-- @relief
function scripts.records(KEYS, ARGV)
  local STATE, TENANTS_AT = KEYS[1], 1

  state_load({ 'rt' })
  for i = TENANTS_AT, #ARGV, 2 do
    local tenant, stored = ARGV[i], ARGV[i + 1]
    local was = redis.call('HGET', keys.records, tenant) or ''
    record_counted(sub(was, 8), sub(stored, 8))
    if stored == '' then
      redis.call('HDEL', keys.records, tenant)
    else
      redis.call('HSET', keys.records, tenant, stored)
    end
  end
  state_write()
  return { 'carried' }
end
