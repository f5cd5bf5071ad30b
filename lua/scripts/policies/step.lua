-- step does the next portion of an edit of the policy that is being stored in steps, whoever calls it.
-- KEYS[1] state  hash; the partition's other keys share its hash tag and are named after it
-- ARGV[1] now  microseconds, "" for Redis TIME
-- Reply {"more"} or {"over"} where there is nothing to do, or {"classes", queue} where jobs have come to wait in a class that would
--   go: it takes back what it has done
-- Never shows the new version before all that it says holds, nor the old one after.
-- @flag allow-oom
-- @relief
function scripts.step(KEYS, ARGV)
  local STATE, NOW = KEYS[1], ARGV[1]
  local now = now_us(NOW)
  call_begin(now, { 'pv', 'pg', 'pools', 'na', 'rd', 'rq' })
  local edit = state_get('pg')
  if not edit then return { 'over' } end
  local key = call.prefix .. 'edit:' .. edit
  local f = edit_read(edit, { 'at', 'a', 'c', 'undo', 'edit', 'version', 'digest', 'expected' })
  local at, first, rest, undo = tonumber(f.at), tonumber(f.a), tonumber(f.c), tonumber(f.undo)
  local over, taken
  if not at then -- A call broke off at its end, or somebody has deleted it. Who edits next looks at what Redis has.
    state_set('pg', false)
    state_set('ps', false)
    state_write()
    return { 'over' }
  end
  if not undo and at <= first and (state_get('pv') or '0') ~= f.expected then -- an older release has stored another one in between
    over, undo = true, 0
  elseif undo then
    settings_apply(portion_read('undo:' .. edit, undo), f.edit, now)
    redis.call('HSET', key, 'undo', undo - 1)
    over = undo <= 0
  else
    local list = portion_read('moves:' .. edit, at)
    if at == first then
      taken = settings_taken(list)
      if taken then
        redis.call('HSET', key, 'undo', first - 1)
        state_write()
        return { 'classes', taken }
      end
      local all = edit_read(edit, { 'version', 'text', 'window', 'edit', 'author', 'reason', 'restored', 'changes', 'copy' })
      settings_apply(list, f.edit, now)
      version_store(all, state_get('pv') or '0', now)
    else
      settings_apply(list, f.edit, now)
    end
    redis.call('HSET', key, 'at', at + 1)
    over = at == first + rest
  end
  if over then
    if not undo then state_set('ps', f.version .. ' ' .. f.digest) end
    redis.call('UNLINK', key, call.prefix .. 'moves:' .. edit, call.prefix .. 'undo:' .. edit)
    state_set('pg', false)
    spilled_look(nil, now)
  end
  freed_wake(now)
  fill(now)
  return { over and 'over' or 'more' }
end
