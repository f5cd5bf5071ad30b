-- scale has limits be a part of what the policy says for a time, or ends that, and tells the audit who did.
-- KEYS[1] state  hash; the partition's other keys share its hash tag and are named after it
-- ARGV[1] now  microseconds, "" for Redis TIME
-- ARGV[2] target  all, global or t:TENANT
-- ARGV[3] part  of rates and bursts, 0.01 to 1
-- ARGV[4] duration  microseconds, 0 to end it
-- ARGV[5] by  who does it and why, as fragments/audit.lua reads it
-- Reply {"scaled" | "ended" | "none" | "full"}: none where there is nothing to end, full where as many are in force as may be
-- Never changes what a bucket holds: what is above its burst is lost when it is next asked.
-- @flag allow-oom
-- @relief
-- SCALES_MOST is how many may be in force beside limits that move by themselves.
local SCALES_MOST = 16

function scripts.scale(KEYS, ARGV)
  local STATE, NOW, TARGET, PART, DURATION, BY = KEYS[1], ARGV[1], ARGV[2], ARGV[3], tonumber(ARGV[4]), ARGV[5]
  local now, by = now_us(NOW), by_read(BY)
  clock_begin(now, {})
  local at = state_num('bt')
  local scales = scales_read(at) or {}
  if DURATION == 0 and not scales[TARGET] then return { 'none' } end
  scales[TARGET] = nil
  if DURATION > 0 then
    local n = 0
    for _, s in pairs(scales) do n = n + (s.loop and 0 or 1) end
    if n >= SCALES_MOST then return { 'full' } end
    scales[TARGET] = { ends = at + DURATION, text = format('%s|%d|', PART, at + DURATION) .. hold_reason(by, now) }
    by.reason = 'to ' .. PART .. (by.reason ~= '' and ': ' or '') .. by.reason
  end
  scales_write(at, scales)
  audit_act(now, by, TARGET, 0, DURATION)
  state_write()
  return { DURATION > 0 and 'scaled' or 'ended' }
end
