-- path: the buckets on the way of a job, global, tenant, queue and priority, for scripts that charge them all or none.
-- A script sets what the keys of tenants' buckets begin with (call.buckets), and the field of the state that has the global one
-- (call.global_bucket). Paths are the arguments a head, the distinct limits, the distinct names, and the tenant of each path.
--   head    '<dddI2I2I2': rate (0 for no bucket, below zero of windows) and burst of the global limit, the most buckets of a tenant, how many limits, how many
--           names, how many paths; then of each path four bytes: class from 0, the level from which on its jobs are refused (admit; 16 times that of a tenant over its share, if lower, added; 0 for never where its
--           queue is not measured; 8 added where it has a way beside the buckets of its queue and class), its limits from 1, its names from 1. Then there is the window of the global limit, if it has any (bucket.lua); then there may be '<I4', of how many tenants a day usage is kept (usage.lua, 0 for
--           none), and behind it, of each path, '<I2': what guess.lua calls doomed, 0 for never; and behind these, where the policy has
--           records of tenants, of each path '<I7': the version of that of its tenant
--           A class of 255 says that the path is that of a dimension's value, beside the hierarchy: no global bucket is on it, its owner stands in the
--           place of the tenant, and it has two arguments more in the place of names: its key, and '' for a key that always has its bucket, else a byte, how
--           many buckets its shard may have, and '+' and the shard. Its limit is that of the queue, and of the tenant for the bucket that others share
--   names   '<I2', how many bytes follow but for the last; QUEUE:CLASS; ':' and the type where that has a limit, too. A class may have a ':' itself
--   limits  '<dddddd': of tenant, queue and priority, rate (0 for no bucket, below zero of windows) and burst; then the windows of those
--           that have any (bucket.lua). Where a job's type has a limit, too, that is the fourth, and a byte more stands at the end, which makes
--           their number odd. Of a path that has a way beside, that way's follow: of its tenant, of what of the tenant's may go beside (field '*') in the place
--           of a queue, 0, and how far below zero it may take the global bucket. Where a part of the global limit is kept from a path, its limits are 128 more in number, and the last text has what
--           those from whom it is kept may take of it together, in the place of a tenant, and 1 in that of a queue's rate where that is lent to them
--           Behind the windows there may be two bytes, where a loop cuts limits of the queue not all alike (moved_scale)
-- What a call has of these is in tables that outlast it, to be written over by the next: that takes a third of what new ones take. Nobody reads
-- beyond what its call has written, which call.owners and call.rows count.
-- OWNERS are the tenants of a call that have buckets: name, key, the first of the buckets, when the key ends, how many fields it has (false
-- for unknown), the version of the record that its limits come from (false for unknown), and when its limits last changed; of a dimension's shard how
-- many buckets it may have (false elsewhere), how many are new in the call, and until when it is not swept again. PATHS are its paths: the buckets by level, false for none, at OTHERS that of those from whom a part of
-- the global limit is kept, at TYPE that of the job's type; tenant, queue, class from 1; `bypass` is the way beside its queue's, class' and type's, with its reserve, false for none. call.levels is the last of these that any path of the call has.
local OWNERS, PATHS, BYPASSES, OTHERS, TYPE = {}, {}, {}, 4, 5
-- The columns of buckets, by row: field, tenant (false for the global one), limit, what there is at call.filled_to, whether it is
-- stored, whether it is to be; the next of the same tenant; the windows of those whose rate is below zero, which are theirs in the place of a
-- rate. Of sliding ones the stamp is what slide_read returns.
local bucket_fields, bucket_owners, bucket_rates, bucket_bursts, bucket_levels, bucket_stamps, bucket_absent, bucket_dirty, bucket_next = {}, {}, {}, {}, {}, {}, {}, {}, {}
local bucket_windows = {}
-- Of a call in which limits are scaled: what each is scaled to (false for nothing), and the rate and burst of the policy.
local bucket_scales, whole_rates, whole_bursts = {}, {}, {}

-- filled_to is the buckets' own time, which never goes back, and calendar that of windows, which is Redis'.
function reset.path()
  call.filled_to, call.paths, call.charged, call.owners, call.rows, call.measured = false, PATHS, {}, 0, 0, false
  call.calendar, call.global_window, call.scales, call.changed_at, call.recorded = false, nil, false, false, false
  call.global_row, call.entered, call.levels, call.others, call.others_row, call.floor = false, false, 3, false, false, 0
  call.floored = false
end

-- less_scale returns the scale of two that leaves less, of equals the one that ends later; nil is none.
local function less_scale(s, other)
  if other and (not s or other.part < s.part or other.part == s.part and other.ends > s.ends) then return other end
  return s
end

-- moved_scale returns what the part that a loop leaves of all limits of a queue leaves of a bucket, nil for all: call.floored has limits with from and
-- least, in percent, by the row of a bucket which is not cut as all are. Of these it is the part divided by from, in whole thousandths, and not below least.
local function moved_scale(b, s)
  local l = s and call.floored and call.floored[b]
  if not l then return s end
  local left = math.max(floor(floor(s.part * 1000 + 0.5) * 100 / l.from), l.least * 10)
  return left < 1000 and { part = left / 1000, ends = s.ends } or nil
end

-- row_scale scales a bucket by what holds for all, for its target, or by itself, whichever leaves less: a burst not below a token, and of a
-- window the tokens alone.
local function row_scale(b, target, moves)
  local s = less_scale(less_scale(call.scales.all, call.scales[target]), moved_scale(b, call.scales[moves]))
  local rate, burst = bucket_rates[b], bucket_bursts[b]
  bucket_scales[b], whole_rates[b], whole_bursts[b] = s or false, rate, burst
  if not s then return end
  if rate > 0 then bucket_rates[b] = rate * s.part end
  bucket_bursts[b] = math.max(math.min(burst, 1000000), floor(burst * s.part))
end

-- scale_at returns what a bucket is scaled to, nothing for what the policy says.
local function scale_at(b) return call.scales and bucket_scales[b] end

-- row_new makes a bucket, first before those of its tenant that there are.
local function row_new(t, first, field, rate, burst)
  local b = call.rows + 1
  call.rows = b
  bucket_fields[b], bucket_owners[b], bucket_rates[b], bucket_bursts[b], bucket_dirty[b], bucket_next[b] = field, t, rate, burst, false, first
  return b
end

-- row_find returns the bucket of a field from one of its tenant on, nil for none.
local function row_find(b, field)
  while b do
    if bucket_fields[b] == field then return b end
    b = bucket_next[b]
  end
end

-- owner_new begins a tenant. Its buckets are read together.
local function owner_new(tenant)
  local n = call.owners + 1
  local t = OWNERS[n]
  if not t then
    t = { name = '', key = '', first = false, expires = 0, count = false, record = false, changed = 0, most = false, fresh = 0, swept = 0 }
    OWNERS[n] = t
  end
  t.name, t.key, t.first, t.expires, t.count, t.record, t.most = tenant, call.prefix .. call.buckets .. tenant, false, 0, false, false, false
  call.charged[tenant], call.owners = t, n
  return t
end

-- path_owner returns a tenant of the call.
local function path_owner(tenant) return call.charged[tenant] or owner_new(tenant) end

-- path_bucket returns a bucket of a tenant by its field.
local function path_bucket(t, field, rate, burst)
  local b = row_find(t.first, field)
  if not b then
    b = row_new(t, t.first, field, rate, burst)
    t.first = b
  end
  return b
end

-- dimension_owner returns the owner of a dimension's values: a shard, or that of those that always have their buckets.
local function dimension_owner(owner, shard)
  local most = byte(shard)
  if not most then return path_owner(owner) end
  local t = path_owner(owner .. sub(shard, 2))
  if not t.most then t.most, t.fresh, t.swept, call.entered = most, 0, 0, call.entered or {} end
  return t
end

local LIMITS_SIZE, TYPED_SIZE = 48, 64
local function limits_unpack(text)
  local typed = #text % 2 == 1
  local l, size = { struct_unpack(typed and '<dddddddd' or '<dddddd', text) }, typed and TYPED_SIZE or LIMITS_SIZE
  for level = 1, 5, 2 do l[level] = l[level] ~= 0 and l[level] end
  l[7] = typed and l[7]
  local last = typed and #text - 1 or #text
  if last > size then
    local at = windows_unpack(l, text, size + 1)
    if at <= last then l.from, l.least = byte(text, at, at + 1) end
  end
  return l
end
local LIMITS = memory(limits_unpack)

-- buckets_of notes the buckets of a path of a tenant, one for each level that its limits have. FIELDS are their fields by level. The buckets of one
-- path are never the same, so only those that the tenant had before are looked through; it makes rows as row_new does, for all levels in one go.
local FIELDS = { '' }
local function buckets_of(path, t, limits)
  local before, first, row = t.first, t.first, call.rows
  local fields, owners, rates, bursts, dirty, following = bucket_fields, bucket_owners, bucket_rates, bucket_bursts, bucket_dirty, bucket_next
  for level = 1, 3 do
    local rate = limits[2 * level - 1]
    local b = rate and before and row_find(before, FIELDS[level])
    if rate and not b then
      row = row + 1
      b = row
      fields[b], owners[b], rates[b], bursts[b], dirty[b], following[b] = FIELDS[level], t, rate, limits[2 * level], false, first
      first = b
    end
    path[level] = b
  end
  t.first, call.rows = first, row
end

-- bypass_read notes the way of the i-th path, of a tenant, beside the buckets of its queue and class.
local function bypass_read(i, t, limits)
  local p = BYPASSES[i]
  if not p then
    p = { [0] = false }
    BYPASSES[i] = p
  end
  FIELDS[2], p[0], p[OTHERS], p[TYPE], p.reserve = '*', false, false, false, limits[6]
  buckets_of(p, t, limits)
  if limits.windows then
    for level, w in pairs(limits.windows) do bucket_windows[p[level]] = w end
  end
  return p
end

-- WAY_NAMES has what names say: the fields of the buckets of a queue, of its class, and of a job's type there, false for none.
local function names_parse(text)
  local field_end = struct_unpack('<I2', text) + 2
  local queue = match(text, '^([^:]*)', 3)
  return { queue = queue, field = sub(text, 3, field_end), typed = #text > field_end and queue .. ':type=' .. sub(text, field_end + 2) }
end
local WAY_NAMES = memory(names_parse)

-- paths_read notes the paths that stand from an argument on, and returns where what follows them begins.
local HEAD, HEAD_SIZE, DIMENSION = '<dddI2I2I2', 30, 255
local function paths_read(at)
  local argv, limits, names = call.argv, {}, {}
  local head = argv[at]
  local n, named, count
  call.global_rate, call.global_burst, call.bucket_cap, n, named, count = struct_unpack(HEAD, head)
  for i = 1, n do limits[i] = remembered(LIMITS, argv[at + i]) end
  at = at + n
  for i = 1, named do names[i] = remembered(WAY_NAMES, argv[at + i]) end
  at = at + named + 1
  local rest, kept, dooms = HEAD_SIZE + 4 * count, 0, false
  if call.global_rate < 0 then
    local behind
    call.global_window, behind = window_unpack(-call.global_rate, head, rest + 1)
    rest = behind - 1
  end
  if #head > rest then kept, dooms = struct_unpack('<I4', head, rest + 1), #head > rest + 4 end
  kept = kept > 0 and kept
  local records_at = rest + 4 + 2 * count
  call.recorded = #head > records_at
  for i = 1, count do
    local class, from, number, name = byte(head, HEAD_SIZE + 4 * i - 3, HEAD_SIZE + 4 * i)
    local kept_from = number > 127
    if kept_from then number, call.levels, call.others = number - 128, math.max(call.levels, OTHERS), limits[n] end
    local tenant, l = argv[at], limits[number]
    local beside, p, typed = class == DIMENSION, PATHS[i], false
    local t, queue
    if not p then
      p = { [0] = false }
      PATHS[i] = p
    end
    if beside then
      queue = argv[at + 1]
      t, p.limits = dimension_owner(tenant, argv[at + 2]), l
      p[1], p[2], p[3] = false, l[3] and path_bucket(t, queue, l[3], l[4]), false
      at = at + 3
    else
      local names_of = names[name]
      t, queue = path_owner(tenant), names_of.queue
      FIELDS[2], FIELDS[3] = queue, names_of.field
      if l[7] then call.levels, typed = TYPE, path_bucket(t, names_of.typed, l[7], l[8]) end
      buckets_of(p, t, l)
      at = at + 1
    end
    if l.windows then
      for level, w in pairs(l.windows) do bucket_windows[level == 4 and typed or p[level]] = w end
    end
    if l.from then
      call.floored = call.floored or {}
      for level = 2, 3 do call.floored[p[level] or 0] = l end
      call.floored[typed or 0] = l
    end
    p[OTHERS], p[TYPE] = kept_from, typed
    p[0], p.tenant, p.queue, p.class, p.owner, p.beside, p.kept, p.from, p.over, p.doomed, p.runnable, p.bypass = false, tenant, queue, class + 1, t, beside, not beside and kept, false, false, false, nil, false
    if from > 0 then
      local level = from % 16
      if level > 7 then level, p.bypass = level - 8, bypass_read(i, t, limits[number + 1]) end
      if level > 0 then
        p.over, p.from = from > 15 and floor(from / 16), level
        call.measured = call.measured or {}
      end
    end
    if dooms then
      local doomed = struct_unpack('<I2', head, rest + 3 + 2 * i)
      p.doomed = doomed > 0 and doomed
    end
    if call.recorded then
      local version = struct_unpack('<I7', head, records_at + 7 * i - 6)
      t.record = (not t.record or t.record == version) and version or -1
    end
  end
  call.path_count = count
  return at
end

-- Records of tenants: HASH `records`, TENANT → version, '>I7', and the record's JSON, what the tenant has of its own beside the policy. A
-- caller's limits come from a version of it; one that is not there has RECORD_NONE. The field '~' of a tenant's buckets has when it was last
-- changed: it lives as long as they do.
local RECORD_NONE, RECORD_VERSION = 1, '>I7'
local function record_version(stored) return stored and struct_unpack(RECORD_VERSION, stored) or RECORD_NONE end

-- Edits of records: STREAM `edits`, the last EDITS_KEPT of them, each under its version: t the tenant, p the version of the edit before it. So whoever knows of
-- one edit knows whether it hears of all that followed: of one that is not there any more, or was made by a release that notes none, the next is not its successor.
local EDITS_KEPT = 512

-- edits_add notes an edit that follows the latest one.
local function edits_add(edit, latest, tenant)
  state_set('rv', edit)
  redis.call('XADD', keys.edits, 'MAXLEN', EDITS_KEPT, format('%d-0', edit), 't', tenant, 'p', format('%d', math.max(latest, RECORD_NONE)))
end

-- edits_since tells the latest edit, RECORD_NONE for none, and the tenants whose records were edited after another one, each behind a space; '*' where
-- that is not known of all.
local function edits_since(heard)
  local latest = math.max(state_num('rv'), RECORD_NONE)
  local told, seen, at = { format('%d', latest) }, {}, format('%d', heard)
  if heard == latest then return told[1] end
  for _, e in ipairs(redis.call('XRANGE', keys.edits, '(' .. at .. '-0', '+', 'COUNT', EDITS_KEPT)) do
    local tenant = e[2][2]
    if e[2][4] ~= at then break end
    at = match(e[1], '^%d+')
    if not seen[tenant] then
      seen[tenant] = true
      told[#told + 1] = tenant
    end
  end
  if at ~= told[1] then return told[1] .. ' *' end
  return table.concat(told, ' ')
end

-- stale_reply is what a call is answered whose limits are not those in force, nil for one whose are: the version of the policy, then of each
-- tenant that has another record its name and that, empty for none. It returns the records of OWNERS, too, where it has read them.
local function stale_reply(version)
  local pv = state_get('pv') or '0'
  if pv ~= version then return { 'stale', pv } end
  if not call.recorded then return end
  local names, reply = {}, nil
  for i = 1, call.owners do names[i] = OWNERS[i].name end
  local stored = redis.call('HMGET', keys.records, unpack(names))
  for i = 1, call.owners do
    if record_version(stored[i]) ~= OWNERS[i].record then
      reply = reply or { 'stale', pv }
      reply[#reply + 1], reply[#reply + 2] = names[i], stored[i] or ''
    end
  end
  return reply, stored
end

-- path_changed returns when the limits of a path last changed.
local function path_changed(path) return path.owner.changed end

-- question_at returns path and cost, in micro-tokens, of the question at a place of packed ones: path from 1 and tokens, '<I2I4'.
local QUESTION, QUESTION_SIZE = '<I2I4', 6
local function question_at(questions, at)
  local path, tokens = struct_unpack(QUESTION, questions, at)
  return PATHS[path], tokens * 1000000
end

-- shared_read reads a bucket of all. Fragment share has the multiple of its rate; windows stay divided evenly.
local function shared_read(field, rate, burst, window, changed_at, now)
  local stored = state_get(field)
  if rate > 0 then rate = rate * (state_get('gm') or 1) end
  local b = row_new(false, false, '', rate, burst)
  bucket_absent[b], bucket_windows[b] = false, window
  if call.scales then
    row_scale(b, 'global', 'l:global')
    rate, burst = bucket_rates[b], bucket_bursts[b]
  end
  if rate > 0 then
    bucket_levels[b], bucket_stamps[b] = bucket_settle(stored, rate, burst, changed_at, now)
  else
    bucket_levels[b], bucket_stamps[b] = window_settle(stored, window, burst, changed_at, now, call.calendar)
  end
  return b
end

-- global_read reads the global bucket, and that of those from whom a part of it is kept, which is the field with an o behind it.
local function global_read(changed_at, now)
  local b = shared_read(call.global_bucket, call.global_rate, call.global_burst, call.global_window, changed_at, now)
  for i = 1, call.path_count do
    local p = PATHS[i]
    p[0] = not p.beside and b
    if p.bypass then p.bypass[0] = b end
  end
  call.global_row = b
  local l = call.others
  if not l then return end
  b = shared_read(call.global_bucket .. 'o', l[1], l[2], l.windows and l.windows[1], changed_at, now)
  for i = 1, call.path_count do PATHS[i][OTHERS] = PATHS[i][OTHERS] and b end
  call.others_row = b
  if l[3] then call.floor = bucket_bursts[call.global_row] - bucket_bursts[b] end
end

-- floor_of is what a job of a path has to leave in its bucket at a level: what is kept of the global limit from those to whom it is lent, and below zero the debt
-- that it may leave there on a way beside.
local function floor_of(path, level)
  if level > 0 then return 0 end
  return path.reserve and -path.reserve or path[OTHERS] and call.floor or 0
end

-- full_fields returns those of a tenant's buckets that are full again, at most so many, and none of those that are kept. A bucket from before the
-- latest policy is not known to be: its full time was counted at a rate that may have been faster.
local MARKS = { ['!'] = true, ['~'] = true, ['^'] = true }
local function full_fields(t, most, kept)
  local values, out = redis.call('HGETALL', t.key), {}
  for i = 1, #values, 2 do
    if not MARKS[values[i]] and not (kept and kept[values[i]]) and #out < most then
      local stored = values[i + 1]
      local stamp, span
      if window_is(stored) then
        stamp, span = window_kept(stored, call.filled_to, call.calendar)
      else
        stamp, span = select(2, bucket_parse(stored))
      end
      if stamp + span <= call.filled_to and stamp >= t.changed then out[#out + 1] = values[i] end
    end
  end
  return out
end

-- Dimensions: values of one have their buckets in shards, hashes so small that they are packed: that is a third of what a key each takes, and
-- counts them. What is full goes from one of SWEPT_FROM and more as a new value comes, not sooner than SWEPT_EVERY after the last time, which
-- the field '^' has: so values that somebody makes up cost no more than that. A value without room has the bucket that all such share.
local SWEPT_FROM, SWEPT_EVERY = 32, 10000000
local function dimension_sweep(t)
  local kept, b = {}, t.first
  while b do -- Those that the call asks may be written again.
    kept[bucket_fields[b]], b = true, bucket_next[b]
  end
  local out = full_fields(t, t.most, kept)
  if #out > 0 then redis.call('HDEL', t.key, unpack(out)) end
  t.count, t.swept = t.count - #out, call.filled_to + SWEPT_EVERY
  redis.call('HSET', t.key, '^', format('%d', t.swept))
end

-- dimension_shared returns the bucket of the values without room.
local function dimension_shared(p)
  local l, t = p.limits, path_owner(p.tenant)
  local b = path_bucket(t, '', l[1], l[2])
  if call.entered[b] then return b end
  call.entered[b] = true
  local stored = redis.call('HMGET', t.key, '!', '')
  if stored[1] then
    t.expires = stored[1] + 0
  else
    t.count = t.count or 0
  end
  t.changed, bucket_absent[b], bucket_windows[b] = call.changed_at, not stored[2], l.windows and l.windows[1]
  if call.scales then row_scale(b, '') end
  if bucket_rates[b] > 0 then
    bucket_levels[b], bucket_stamps[b] = bucket_settle(stored[2], bucket_rates[b], bucket_bursts[b], call.changed_at, call.filled_to)
  else
    bucket_levels[b], bucket_stamps[b] = window_settle(stored[2], bucket_windows[b], bucket_bursts[b], call.changed_at, call.filled_to, call.calendar)
  end
  return b
end

-- dimension_taken has the path of a dimension's value be that of the bucket which a taking has charged. One that had its own, and finds no room for it, needs no more:
-- that was full by then, so all that the taking took came in, and of the shared one nothing goes back.
local function dimension_taken(p, of_others)
  if of_others and p[2] and p.owner.most then p[2], p[1] = false, dimension_shared(p) end
end

-- dimension_enter makes sure that there is room for the bucket of a value, or gives it the one that is shared.
local function dimension_enter(p)
  local b, t = p[2], p.owner
  if not b or not t.most or not bucket_absent[b] then return end
  if call.entered[b] == nil then
    t.count = t.count or redis.call('HLEN', t.key) - (t.swept > 0 and 2 or 1)
    if t.count >= math.min(t.most, SWEPT_FROM) and call.filled_to >= t.swept then dimension_sweep(t) end
    call.entered[b] = t.count + t.fresh < t.most
    if call.entered[b] then t.fresh = t.fresh + 1 end
  end
  if not call.entered[b] then p[2], p[1] = false, dimension_shared(p) end
end

-- buckets_read needs `gm` and GLOBAL_BUCKET loaded.
local ASKED = { '!' }
local function buckets_read()
  local now, asked, before = state_num('bt'), ASKED, 1
  local scales, changed_at = scales_read(now)
  local fields, following, rates, bursts = bucket_fields, bucket_next, bucket_rates, bucket_bursts
  local levels, stamps, absent = bucket_levels, bucket_stamps, bucket_absent
  call.filled_to, call.calendar, call.scales, call.changed_at = now, state_num('t'), scales, changed_at
  if call.recorded then before = 2 end
  for i = 1, call.owners do
    local t, n = OWNERS[i], before
    if t.most then
      asked[2], n = '^', 2
    elseif n > 1 then
      asked[2] = '~'
    end
    local first = n
    local b, changed = t.first, changed_at
    t.changed = changed_at
    while b do
      if scales then row_scale(b, 't:' .. sub(t.key, #call.prefix + #call.buckets + 1), 'l:q:' .. match(fields[b], '^[^:]*')) end
      n = n + 1
      asked[n], b = fields[b], following[b]
    end
    if n > first then
      local values = redis.call('HMGET', t.key, unpack(asked, 1, n))
      if values[1] then
        t.expires = values[1] + 0
      else
        t.count = 0
      end
      if t.most then
        t.swept = (values[2] or 0) + 0
      elseif first > 1 and values[2] then
        changed = math.max(changed, values[2] + 0)
        t.changed = changed
      end
      b, n = t.first, first
      while b do
        n = n + 1
        local stored = values[n]
        local rate = rates[b]
        absent[b] = not stored
        if rate > 0 then
          levels[b], stamps[b] = bucket_settle(stored, rate, bursts[b], changed, now)
        else
          levels[b], stamps[b] = window_settle(stored, bucket_windows[b], bursts[b], changed, now, call.calendar)
        end
        b = following[b]
      end
    end
  end
  if call.entered then
    for i = 1, call.path_count do dimension_enter(PATHS[i]) end
  end
  if call.global_rate ~= 0 then global_read(changed_at, now) end
end

-- room_for reports whether the tenant may have one more bucket; full ones make room.
local function room_for(b)
  local t = bucket_owners[b]
  if not t then return true end
  t.count = t.count or redis.call('HLEN', t.key)
  return t.count < call.bucket_cap
end

-- scaled_wait is row_wait of a bucket that is scaled: until it holds cost, or its scale has ended and the policy's limit has made up for what
-- is missing. Of the policy's window it is told what the scaled one leaves.
local function scaled_wait(b, cost, s)
  local level, stamp, rate, burst = bucket_levels[b], bucket_stamps[b], bucket_rates[b], bucket_bursts[b]
  local left, whole = s.ends - call.filled_to, whole_bursts[b]
  if rate < 0 and bucket_windows[b].grain then
    local taken = slide_level(stamp, burst) - level
    return math.max(1, math.min(slide_until(stamp, burst, taken, cost), math.max(left, slide_until(stamp, whole, taken, cost))))
  end
  if rate < 0 then
    local wait = window_wait(level, stamp, bucket_windows[b], burst < cost and whole or burst, cost, call.calendar)
    return level + whole - burst >= cost and math.min(wait, left) or wait
  end
  local wait = burst >= cost and bucket_wait(level, stamp, rate, cost, call.filled_to) or math.huge
  if wait <= left then return wait end
  local held = math.min(burst, level + floor(math.max(0, s.ends - stamp) * rate))
  return left + math.max(1, ceil((cost - held) / whole_rates[b]) + 1)
end

-- row_wait returns the microseconds until a bucket holds cost.
local function row_wait(b, cost)
  local level, stamp, rate, s = bucket_levels[b], bucket_stamps[b], bucket_rates[b], scale_at(b)
  if s then return scaled_wait(b, cost, s) end
  if rate > 0 then return bucket_wait(level, stamp, rate, cost, call.filled_to) end
  return window_wait(level, stamp, bucket_windows[b], bucket_bursts[b], cost, call.calendar)
end

-- told_level is the level that a refusal tells, and what stands before it: that of others is a part of the global one, that of a type stands beside that of the
-- class, and on a way beside that of a queue is one of the tenant's.
local function told_level(path, level)
  if level == OTHERS then return 'kept ', 0 end
  if level == TYPE then return 'type ', 3 end
  if path.reserve and level == 2 then return 'bypass ', 1 end
  return '', level
end

-- limited_line is the refusal of a bucket that holds too little beside what has to be left below; of one that is scaled to which part, in millionths, and until when follows.
local function limited_line(path, level, wait)
  local b, below = path[level], math.max(0, floor_of(path, level))
  local before, told = told_level(path, below > 0 and OTHERS or level)
  local left = below > 0 and math.max(0, bucket_levels[b] - below) or bucket_levels[b]
  local line, s = format('%slimited %d %d %d %d', before, told, left, wait, bucket_bursts[b] - below), scale_at(b)
  return s and line .. format(' %d %d', floor(s.part * 1000000 + 0.5), s.ends - call.filled_to + call.calendar) or line
end

-- refusal_of returns the refusal of a path that does not hold the cost, nil where it does, and how long it lasts at least. What costs more than a burst by the policy
-- never passes.
local NEVER, NO_ROOM = math.huge, 2 ^ 53
local function refusal_of(path, cost)
  local worst, wait_most
  local bursts = call.scales and whole_bursts or bucket_bursts
  for level = 0, call.levels do
    local b = path[level]
    if b and bursts[b] < cost then
      local before, told = told_level(path, level)
      return format('%scostly %d %d', before, told, bursts[b]), NEVER
    end
  end
  for level = 0, call.levels do
    local b, asked = path[level], cost + floor_of(path, level)
    if b and bucket_levels[b] < asked then
      local wait = row_wait(b, asked)
      if not worst or wait > wait_most then worst, wait_most = level, wait end
    elseif b and bucket_absent[b] and not bucket_dirty[b] and not room_for(b) then
      local before, told = told_level(path, level)
      return format('%sbuckets %d', path.reserve and '' or before, told), NO_ROOM
    end
  end
  if worst then return limited_line(path, worst, wait_most), wait_most end
end

-- way_of returns which way a job of a path goes that is let in: beside the buckets of its queue and class where it can.
local function way_of(path, cost)
  local bypass = path.bypass
  return bypass and not refusal_of(bypass, cost) and bypass or path
end

-- decide_both is decide of a path that has a way beside: it is told which of both it can go sooner, as buckets.Choose does.
local function decide_both(path, cost)
  local beside, beside_wait = refusal_of(path.bypass, cost)
  local all, all_wait = refusal_of(path, cost)
  if beside and all then return beside_wait < all_wait and beside or all end
end

-- pressure_of returns the level of a queue that is measured, and level, score and hint as callers are told them: none, where nobody has
-- measured lately. `call.measured` has what it said of a queue in this call.
local function pressure_of(queue, now)
  local told = call.measured[queue]
  if not told then
    local level, score, until_us, hint = match(state_get('pressure:' .. queue) or '', '^(%d)|(%d+)|(%d+)|(%d+)|')
    told = { 1, '1 0 0' }
    if level and tonumber(until_us) >= now then told = { tonumber(level), level .. ' ' .. score .. ' ' .. hint } end
    call.measured[queue] = told
  end
  return told[1], told[2]
end

-- pressures_told adds to a reply, for each path of a queue that is measured, what pressure_of says.
local function pressures_told(reply, now)
  if not call.measured then return reply end
  for i = 1, call.path_count do
    local path = call.paths[i]
    if path.from then reply[#reply + 1] = select(2, pressure_of(path.queue, now)) end
  end
  return reply
end

-- decide returns nil when every bucket on the path holds the cost, else the refusal. Costs are micro-tokens.
local function decide(path, cost)
  if path.bypass then return decide_both(path, cost) end
  local levels, absent, dirty = bucket_levels, bucket_absent, bucket_dirty
  for level = 0, call.levels do
    local b = path[level]
    if b and (levels[b] < cost or absent[b] and not dirty[b]) then return refusal_of(path, cost) end
  end
  if call.floor > 0 and path[OTHERS] and levels[path[0]] < cost + call.floor then return refusal_of(path, cost) end
end

-- path_least returns the level on a path whose bucket holds least, the outermost of equals, and that bucket; nil where there is none.
local function path_least(path)
  local levels, at, of, least = bucket_levels, nil, nil, math.huge
  for level = 0, call.levels do
    local b = path[level]
    if b and levels[b] < least then at, of, least = level, b, levels[b] end
  end
  return at, of
end

-- bucket_put has a bucket hold so much.
local function bucket_put(b, level)
  local t = bucket_owners[b]
  if t and bucket_absent[b] and not bucket_dirty[b] then t.count = (t.count or 0) + 1 end
  bucket_levels[b], bucket_dirty[b] = level, true
end

local function charge(path, cost)
  local levels, absent, dirty = bucket_levels, bucket_absent, bucket_dirty
  for level = 0, call.levels do
    local b = path[level]
    if b then
      local left = levels[b] - cost
      if absent[b] and not dirty[b] then bucket_put(b, left) end
      levels[b], dirty[b] = left, true
    end
  end
end

-- path_settle has the buckets of a path hold what work has cost in place of what it reserved, in whole tokens, `elapsed` microseconds ago:
-- buckets.TrueUp, which derives it. left is what the reservation left in each, and refunds what was refunded in all since, in micro-tokens;
-- nil where nobody noted it.
local function path_settle(path, reserved, actual, elapsed, left, refunds)
  local back = reserved - actual
  for level = 0, call.levels do
    local b = path[level]
    local to = b and bucket_levels[b]
    if b and back < 0 then
      to = math.max(to + back * 1000000, math.min(to, -bucket_bursts[b]))
      if bucket_rates[b] < 0 and bucket_windows[b].grain then to = bucket_levels[b] - floor((bucket_levels[b] - to) / 1000000) * 1000000 end
    elseif b and bucket_rates[b] < 0 then
      if bucket_windows[b].grain then
        local taken = slide_level(bucket_stamps[b], bucket_bursts[b]) - to
        to = to + slide_give_back(bucket_stamps[b], call.filled_to - elapsed, back, taken) * 1000000
      elseif call.calendar - elapsed >= window_bounds(bucket_windows[b], call.calendar) then
        to = math.max(to, math.min(bucket_bursts[b], to + back * 1000000))
      end
    elseif b then
      -- Where the rate follows its use over partitions, it may have been all of it.
      local rate = bucket_rates[b]
      if b == call.global_row or b == call.others_row then
        rate = state_get('gm') and (level == 0 and call.global_rate or call.others[1]) * state_num('partitions') or rate
      end
      local came = math.ceil(elapsed * rate) + 1
      local room = math.max(0, reserved * 1000000 - came, left and left[level] and bucket_bursts[b] - left[level] - came - refunds or 0)
      to = math.max(to, math.min(bucket_bursts[b], to + math.min(back * 1000000, room)))
    end
    if b and to ~= bucket_levels[b] and (not bucket_absent[b] or bucket_dirty[b] or room_for(b)) then
      if bucket_levels[b] == bucket_bursts[b] and bucket_rates[b] > 0 then bucket_stamps[b] = call.filled_to end -- Work before this one has filled it: nothing came in since.
      bucket_put(b, to)
    end
  end
end

-- path_true_up is path_settle of a path that was taken alone.
local function path_true_up(path, reserved, actual, elapsed)
  path_settle(path, reserved, actual, elapsed)
  if actual < reserved then state_add('rf', reserved - actual) end
end

-- buckets_sweep removes what is full again, at most 16 of a tenant with many.
local function buckets_sweep(t)
  local out = full_fields(t, 16)
  if #out > 0 then redis.call('HDEL', t.key, unpack(out)) end
end

-- shared_write stores a bucket of all, if it was charged.
local function shared_write(b, field, packs)
  if not b or not bucket_dirty[b] then return end
  local level, stamp, rate, burst = bucket_levels[b], bucket_stamps[b], bucket_rates[b], bucket_bursts[b]
  local stored = rate > 0 and bucket_stored(level, stamp, burst, rate, packs) or window_stored(level, stamp, bucket_windows[b], burst, call.filled_to - call.calendar)
  state_set(field, stored)
end

-- buckets_write stores what was charged, the global bucket in the state. A tenant's buckets go when the last of them is full.
local TTL_SLACK = 2000000
local WRITTEN = {}
local function buckets_write(now)
  local packs, written = state_packed(), WRITTEN
  local fields, following, rates, bursts = bucket_fields, bucket_next, bucket_rates, bucket_bursts
  local levels, stamps, dirty = bucket_levels, bucket_stamps, bucket_dirty
  for i = 1, call.owners do
    local t, n, full_at = OWNERS[i], 0, 0
    local b = t.first
    while b do
      if dirty[b] then
        local level, stamp, rate, burst = levels[b], stamps[b], rates[b], bursts[b]
        local full, text
        if rate > 0 then
          full, text = stamp + (burst - level) / rate, bucket_stored(level, stamp, burst, rate, packs)
        else
          text, full = window_stored(level, stamp, bucket_windows[b], burst, call.filled_to - call.calendar)
        end
        if full > full_at then full_at = full end
        written[n + 1], written[n + 2] = fields[b], text
        n = n + 2
      end
      b = following[b]
    end
    if n > 0 then
      full_at = ceil(full_at)
      local renew = full_at > t.expires
      if renew then
        written[n + 1], written[n + 2] = '!', format('%d', full_at + TTL_SLACK)
        n = n + 2
      end
      redis.call('HSET', t.key, unpack(written, 1, n))
      if renew then
        local at = format('%d', math.ceil((full_at - call.filled_to + now + TTL_SLACK) / 1000))
        if t.expires == 0 then
          redis.call('PEXPIREAT', t.key, at)
        else
          redis.call('PEXPIREAT', t.key, at, 'GT') -- a new policy may have put it off further
        end
      end
      if t.count and t.count >= 128 then buckets_sweep(t) end
    end
  end
  shared_write(call.global_row, call.global_bucket, packs)
  if call.others_row then shared_write(call.others_row, call.global_bucket .. 'o', packs) end
end
