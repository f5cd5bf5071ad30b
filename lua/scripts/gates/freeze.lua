-- freeze keeps a limit from moving by itself, or lets it go on, and tells the audit who did.
-- KEYS[1] state  hash; the partition's other keys share its hash tag and are named after it
-- ARGV[1] now  microseconds, "" for Redis TIME
-- ARGV[2] name  of the gate
-- ARGV[3] frozen  1, or 0 to let it go on
-- ARGV[4] by  who does it and why, as fragments/audit.lua reads it
-- Reply {"was" | "was not" | "none"}: whether it was frozen, none for a gate whose limit does not move by itself
-- Never changes what is in force.
-- @flag allow-oom
-- @relief
function scripts.freeze(KEYS, ARGV)
  local STATE, NOW, NAME, FROZEN, BY = KEYS[1], ARGV[1], ARGV[2], ARGV[3] == '1', ARGV[4]
  local now = now_us(NOW)
  call_begin(now, { 'na' })
  local by, a = by_read(BY), adaptive_read(NAME)
  if not a then return { 'none' } end
  local word = a.frozen ~= '' and 'was' or 'was not'
  if not FROZEN and a.frozen == '' then return { word } end
  a.frozen = FROZEN and hold_reason(by, now) or ''
  adaptive_write(NAME, a)
  audit_act(now, by, NAME, 0, 0)
  state_write()
  return { word }
end
