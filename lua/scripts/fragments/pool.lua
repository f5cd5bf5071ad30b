-- @include state
-- pool: workers that serve the same queues.
--   pool:POOL  slots|mode|cur|left|queue=weight,…   mode w weighted or s strict; pools names all
--   ready:POOL STREAM of entries j key, r record, p period of a breaker if there is one; group g
function reset.pool() call.pools = {} end

local function pool_open(id)
  local p = call.pools[id]
  if p == nil then
    local v = state_get('pool:' .. id)
    p = false
    if v then
      local slots, mode, cur, left, spec = match(v, '^(%d+)|(%a)|(%d+)|(%d+)|(.*)$')
      p = { id = id, key = call.prefix .. 'ready:' .. id, slots = tonumber(slots), mode = mode, cur = tonumber(cur),
        left = tonumber(left), spec = spec, w = {}, queues = {}, n = 0 }
      for queue, weight in string.gmatch(spec, '([^=,]+)=(%d+)') do
        p.n = p.n + 1
        p.queues[p.n], p.w[p.n] = queue, tonumber(weight)
      end
    end
    call.pools[id] = p
  end
  return p
end

local function pool_write(p)
  state_set('pool:' .. p.id, format('%d|%s|%d|%d|%s', p.slots, p.mode, p.cur, p.left, p.spec))
end
