-- audit: a stream with an entry for each thing that somebody did to the policy, to a gate, a suspension, a breaker or a bucket,
-- or to jobs as an operator. The script that acts writes it; nothing changes one but more of the same act. It has at most
-- KEPT_AUDIT entries, and `al` counts those that left.
local KEPT_AUDIT = 10000

local function audit_add(fields)
  redis.call('XADD', keys.audit, '*', unpack(fields))
  local gone = redis.call('XTRIM', keys.audit, 'MAXLEN', KEPT_AUDIT)
  if gone > 0 then state_add('al', gone) end
end

-- by_read reads who acts from "action\nact\nauthor\nsince\nreason", as actor.go writes it: act names what several calls do, and is
-- empty where nothing is to be told; since is when it was done, microseconds, empty for now.
local function by_read(text)
  local action, act, author, since, reason = match(text, '^([^\n]*)\n([^\n]*)\n([^\n]*)\n(%d*)\n(.*)$')
  return { action = action, act = act, author = author, since = since, reason = reason }
end

-- hold_reason is the reason of a pause or a suspension with who gave it, and when.
local function hold_reason(by, now)
  return by.reason .. '\1' .. (by.since ~= '' and by.since or format('%d', now)) .. '|' .. by.author
end

-- Triggers of the policy hold things back under this name, and leave alone what anybody else does.
local TRIGGERS = 'headgate triggers'
local function hold_of_triggers(hold) return match(hold, '\1%d+|([^\1]*)$') == TRIGGERS end

-- hold_others reports whether triggers act on what somebody else holds back, by whatever name, or by none.
local function hold_others(by, hold) return by.author == TRIGGERS and hold and not hold_of_triggers(hold) end

-- hold_renewed reports whether triggers hold on to what they hold already, which the audit was told.
local function hold_renewed(by, hold) return by.author == TRIGGERS and hold and hold_of_triggers(hold) end

-- audit_act tells what was done to what a name says (that of a gate, of a job or of a scope), to how many jobs, and for how many
-- microseconds. What one act does in several calls is one entry, if it is among the last LOOK_BACK and no older than ACT_LASTS.
local LOOK_BACK, ACT_LASTS = 8, 600000000
local function audit_act(now, by, name, n, duration)
  if by.act == '' then return end
  for _, entry in ipairs(redis.call('XREVRANGE', keys.audit, '+', '-', 'COUNT', LOOK_BACK)) do
    local at = {}
    for i = 1, #entry[2], 2 do at[entry[2][i]] = entry[2][i + 1] end
    if at.act == by.act and at.action == by.action and at.name == name and at.author == by.author and now - at.at < ACT_LASTS then
      n = n + tonumber(at.n)
      redis.call('XDEL', keys.audit, entry[1])
      break
    end
  end
  audit_add({
    'at', format('%d', now), 'action', by.action, 'name', name, 'n', format('%d', n), 'for', format('%d', duration or 0), 'author',
    by.author, 'reason', by.reason, 'act', by.act,
  })
end
