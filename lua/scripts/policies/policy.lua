-- policy stores a new version of the policy: its text, and those settings of queues, tenants, gates and weights that differ. It
-- keeps the last versions and an entry in the audit of who stored each, or only tells whether it would be stored.
-- KEYS[1] state  hash; the partition's other keys share its hash tag and are named after it
-- ARGV[1] now  microseconds, "" for Redis TIME
-- ARGV[2] expected  version that is in force
-- ARGV[3] version  of the new one
-- ARGV[4] text  JSON
-- ARGV[5] window  microseconds that ended ids are kept
-- ARGV[6] edit  names this edit among all, so that one that is sent again is known; "-" stores nothing
-- ARGV[7] author  who stores it
-- ARGV[8] reason  why
-- ARGV[9] restored  version whose document it has, "" for a new one
-- ARGV[10] changes  JSON, for the audit
-- ARGV[11] copy  what other partitions are to store, "" where there are none or they are the ones
-- ARGV[12] digest  of all settings after it
-- ARGV[13] ...  settings, as fragments/settings.lua says
-- Reply {"stored" | "more" | "fine"} or {"conflict", version in force} or {"editing", edit that is being stored in steps} or
--   {"classes", queue}: jobs wait in a class that would go; "fine" is for the edit "-"
-- Never takes away what a job has: a new weight counts from a tenant's next dispatch, a lower cap too.
function scripts.policy(KEYS, ARGV)
  local STATE, NOW, EXPECTED, VERSION, TEXT, WINDOW = KEYS[1], ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5]
  local EDIT, AUTHOR, REASON, RESTORED, CHANGES, COPY, DIGEST = ARGV[6], ARGV[7], ARGV[8], ARGV[9], ARGV[10], ARGV[11], ARGV[12]
  local SETTINGS_AT = 13
  local now = now_us(NOW)

  call_begin(now, { 'pv', 'pe', 'pg', 'pools', 'na', 'rd', 'rq' })
  local current = state_get('pv') or '0'
  if current == VERSION and state_get('pe') == EDIT and redis.call('GET', keys.policy) == TEXT then return { 'stored' } end
  if state_get('pg') then return { 'editing', state_get('pg') } end
  if current ~= EXPECTED then return { 'conflict', current } end
  local list = {}
  for i = SETTINGS_AT, #ARGV do list[#list + 1] = ARGV[i] end
  local taken = settings_taken(list)
  if taken then return { 'classes', taken } end
  if EDIT == '-' then return { 'fine' } end
  redis.call('DEL', keys.relief)
  settings_apply(list, EDIT, now)
  version_store({
    version = VERSION, text = TEXT, window = WINDOW, edit = EDIT, author = AUTHOR, reason = REASON, restored = RESTORED, changes = CHANGES,
    copy = COPY,
  }, current, now)
  state_set('ps', VERSION .. ' ' .. DIGEST)
  spilled_look(nil, now)
  freed_wake(now)
  return { fill(now) and 'more' or 'stored' }
end
