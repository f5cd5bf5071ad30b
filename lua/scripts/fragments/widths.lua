-- @include ends
-- @include lane
-- widths: a tenant has at most LANE_CAP lanes in a class of a queue, and those that one call makes. `wide` (lane.lua) has those that
-- have many. Jobs that are put off make their lanes when their time comes: `ahead:TENANT` is a ZSET of the downstreams of those by the
-- time of the last, of which there are as many at most.
function reset.widths() call.ahead_new = {} end

-- lanes_full returns the refusal of a job for which a tenant that has as many lanes as it may would have one more.
local function lanes_full(job, now)
  local path, lane = job.path, record_lane(job.rec)
  if #lane == 1 then return nil end
  if queue_open(path.queue).wait > 0 then lane = 'd' .. sub(lane, 2) end
  local cq = (path.class - 1) .. ':' .. path.queue
  local n = state_num('wl') > 0 and tonumber(redis.call('ZSCORE', keys.wide, cq .. ':' .. path.tenant) or 0) or 0
  if n >= LANE_CAP and redis.call('EXISTS', call.prefix .. 'lane:' .. cq .. ':' .. path.tenant .. ':' .. lane) == 0 then return format('lanes %d', n) end
  if not job.start then return nil end
  local zset, downstream = call.prefix .. 'ahead:' .. path.tenant, sub(lane, 2)
  local new = call.ahead_new[path.tenant] or {}
  if new[downstream] or redis.call('ZSCORE', zset, downstream) then return nil end
  n = ends_count(zset, now) + (new.n or 0)
  if n >= LANE_CAP then return format('lanes %d', n) end
  new.n, new[downstream] = (new.n or 0) + 1, true
  call.ahead_new[path.tenant] = new
end

-- ahead_add notes a job that is put off.
local function ahead_add(job, now)
  local downstream = sub(record_lane(job.rec), 2)
  if downstream ~= '' then ends_add(call.prefix .. 'ahead:' .. job.path.tenant, downstream, job.start, now) end
end
