-- trigger notes that a trigger of the policy acts, still does, or does no more, and tells the audit as it begins and ends.
-- KEYS[1] state  hash; the partition's other keys share its hash tag and are named after it
-- ARGV[1] now  microseconds, "" for Redis TIME
-- ARGV[2] name
-- ARGV[3] life  microseconds for which it is taken to act unless it is noted anew, 0 where it does no more
-- ARGV[4] text  what it does to what, each with | behind it, and why
-- ARGV[5] owner  of the timer lease
-- ARGV[6] version  of the policy that has it, or has it no more
-- ARGV[7] by  who and why, as fragments/audit.lua reads it
-- Reply {"began" | "kept" | "ended" | "none", 0}, or {"held", 0} where another has the timer lease, {"stale", version in force}
-- Never does what the trigger does: those are scripts of their own, whose doings end by themselves.
-- @flag allow-oom
-- @relief
function scripts.trigger(KEYS, ARGV)
  local STATE, NOW, NAME, LIFE, TEXT, OWNER, VERSION, BY = KEYS[1], ARGV[1], ARGV[2], tonumber(ARGV[3]), ARGV[4], ARGV[5], ARGV[6], ARGV[7]
  local now, by, word = now_us(NOW), by_read(BY), 'none'
  call_begin(now, { 'promoter' })
  if match(state_get('promoter') or '', '^%d+|(.*)$') ~= OWNER then return { 'held', '0' } end
  if (state_get('pv') or '0') ~= VERSION then return { 'stale', state_get('pv') or '0' } end
  local until_us, since = match(redis.call('HGET', keys.triggers, NAME) or '', '^(%d+)|(%d+)|')
  if LIFE > 0 then
    local acts = until_us and tonumber(until_us) > now
    word = acts and 'kept' or 'began'
    redis.call('HSET', keys.triggers, NAME, format('%d|%s|', now + LIFE, acts and since or format('%d', now)) .. TEXT)
  elseif until_us then
    redis.call('HDEL', keys.triggers, NAME)
    word = 'ended'
  end
  if word == 'began' or word == 'ended' then audit_act(now, by, NAME, 0, 0) end
  state_write()
  return { word, '0' }
end
