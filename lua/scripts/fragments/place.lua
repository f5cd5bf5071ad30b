-- @include lane
-- lane_place adds a job to its lane, and its tenant to the runnable set where nothing stands against it. It
-- returns the number of jobs in the lane.
local function lane_place(cl, tenant, lane, score, member)
  local key = lane_key(cl, tenant, lane)
  redis.call('ZADD', key, format('%d', score), member)
  local size = redis.call('ZCARD', key)
  waiting_add(cl, lane, 1)
  cl.q.touched = true
  local dated, x = byte(lane) == 100, tenant_open(cl, tenant)
  local first = size == 1 or (dated or x.lane ~= lane) and redis.call('ZRANK', key, member) == 0
  if first and dated then due_add(keys.due, score + 1, deadline_timer(cl, tenant, lane)) end
  if not x then
    tenant_enter(cl, tenant, { beside = '', lane = lane })
  elseif first and x.lane ~= lane then
    local lanes = lanes_key(cl, tenant)
    if size > 1 then
      local blocked = score_of(redis.call('ZSCORE', lanes, lane)) >= BLOCKED
      redis.call('ZADD', lanes, format('%d', blocked and score + BLOCKED or score), lane)
    elseif x.lane ~= '*' then
      tenant_several(cl, tenant, x, lane, format('%d', score))
    elseif x.mode == 'b' then
      x.beside, x.lane = '+', lane
      tenant_enter(cl, tenant, x)
    else
      redis.call('ZADD', lanes, format('%d', score), lane)
      lane_counted(cl, tenant, true)
    end
  end
  return size
end
