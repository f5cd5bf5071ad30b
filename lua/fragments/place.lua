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
  local first = size == 1 or (dated or x.lane == '*') and redis.call('ZRANK', key, member) == 0
  if first and dated then due_add(DUE, score + 1, deadline_timer(cl, tenant, lane)) end
  if not x then
    tenant_enter(cl, tenant, { lane = lane })
  elseif x.lane == '*' then
    if not first then return size end
    local at = redis.call('ZSCORE', lanes_key(cl, tenant), lane)
    local blocked = at and score_of(at) >= BLOCKED
    redis.call('ZADD', lanes_key(cl, tenant), format('%d', blocked and score + BLOCKED or score), lane)
    if x.mode == 'b' and not blocked then tenant_enter(cl, tenant, x) end
  elseif x.lane ~= lane then
    local head = redis.call('ZRANGE', lane_key(cl, tenant, x.lane), 0, 0, 'WITHSCORES')
    redis.call('ZADD', lanes_key(cl, tenant), head[2], x.lane, format('%d', score), lane)
    if x.mode == 'a' then runs_add(cl, x.lane, -1) end
    x.lane = '*'
    tenant_write(cl, tenant, x)
  end
  return size
end
