-- count adds what a process has seen admitted and refused to the counts of this minute, of the scopes with the most.
-- KEYS[1] state  hash; the partition's other keys share its hash tag and are named after it
-- ARGV[1] now  microseconds, "" for Redis TIME
-- ARGV[2] top  largest number of scopes that are counted, those to be counted always apart
-- ARGV[3] keep  seconds that a minute is kept
-- ARGV[4] queues  largest number of queues that are watched, "" where nobody looks: then it is not noted either that a scope made room
-- ARGV[5] ...  of each scope: its name, "1" to count it always, jobs admitted, jobs refused, tokens asked for; or the name of a queue
--   that is watched, "q" and the same; or a scope of a dimension, "l" and how many millionths of its limit the tokens are, and the same: these are counted apart, ranked by that
-- Reply {"counted"}
-- Never keeps more than top scopes in a minute and those counted always, nor 256 of dimensions: the one with the fewest makes room.
-- rank counts n for a scope (the algorithm Space-Saving: a newcomer takes the place, and the rank, of the last), and
-- returns whether it is new.
local function rank(c, i, n)
  if c.ranked[i] then
    redis.call('ZINCRBY', c.ranks, n, c.names[i])
    return false
  end
  local below = 0
  if c.size >= c.top then
    local last = redis.call('ZPOPMIN', c.ranks)
    below = tonumber(last[2])
    redis.call('HDEL', c.counts, last[1])
    c.crowded = true
    local place = c.places[last[1]]
    if place then c.ranked[place], c.stored[place] = false, false end
  else
    c.size = c.size + 1
  end
  redis.call('ZADD', c.ranks, below + n, c.names[i])
  c.ranked[i] = true
  return true
end

-- watch adds what was counted of queues, at most `most` of them, whether scopes made room, and that somebody counted.
local function watch(key, queues, most, crowded, keep)
  redis.call('HSET', key, crowded and 'crowded' or 'watched', '1') -- Queues that are not in it had nothing.
  for _, q in ipairs(queues) do
    local admitted = 'a:' .. q.name
    if redis.call('HLEN', key) < 2 * most + 1 or redis.call('HEXISTS', key, admitted) == 1 then
      redis.call('HINCRBY', key, admitted, q.admitted)
      redis.call('HINCRBY', key, 'r:' .. q.name, q.refused)
    end
  end
  redis.call('EXPIRE', key, keep)
end

-- count_scopes adds what was counted of scopes, and returns whether one made room for another.
local function count_scopes(counts, ranks, top, scopes, names, keep)
  -- As a minute begins all ranks are halved, so that scopes of long ago do not stay.
  if redis.call('EXISTS', counts) == 0 then
    redis.call('ZUNIONSTORE', ranks, 1, ranks, 'WEIGHTS', '0.5')
    redis.call('ZREMRANGEBYSCORE', ranks, '-inf', '(1')
  end
  local places = {}
  for i, name in ipairs(names) do places[name] = i end
  local ranked, stored = redis.call('ZMSCORE', ranks, unpack(names)), redis.call('HMGET', counts, unpack(names))
  local c = { names = names, places = places, ranked = ranked, stored = stored, ranks = ranks, counts = counts, top = top,
    size = redis.call('ZCARD', ranks) }

  for i, s in ipairs(scopes) do
    local fresh = not s.always and rank(c, i, s.of_limit or s.admitted + s.refused)
    local a, r, t, partial = match(stored[i] or '', '^(%d+):(%d+):(%d+):(%d)$')
    partial = partial or fresh and 1 or 0
    redis.call('HSET', counts, names[i], format('%d:%d:%d:%d', s.admitted + (a or 0), s.refused + (r or 0), s.tokens + (t or 0), partial))
  end
  redis.call('EXPIRE', counts, keep)
  redis.call('EXPIRE', ranks, keep)
  return c.crowded
end

-- count_values adds what was counted of values of dimensions: store.CountedValues of them, for NearbyFor and, as ranks, a minute more.
local VALUES, VALUES_KEPT = 256, 300
local function count_values(minute, values)
  local names = {}
  for i, s in ipairs(values) do names[i] = s.name end
  count_scopes(call.prefix .. 'values:' .. minute, call.prefix .. 'valueranks', VALUES, values, names, VALUES_KEPT)
end

function scripts.count(KEYS, ARGV)
  local STATE, NOW, TOP, KEEP, QUEUES = KEYS[1], ARGV[1], tonumber(ARGV[2]), ARGV[3], tonumber(ARGV[4])
  local SCOPES_AT, SCOPE_SIZE = 5, 5
  local MINUTE = format('%d', math.floor(now_us(NOW) / 60000000))
  local names, scopes, queues, values, crowded = {}, {}, {}, {}, false
  for at = SCOPES_AT, #ARGV, SCOPE_SIZE do
    local s = { name = ARGV[at], always = ARGV[at + 1] == '1', admitted = tonumber(ARGV[at + 2]), refused = tonumber(ARGV[at + 3]),
      tokens = tonumber(ARGV[at + 4]) }
    if ARGV[at + 1] == 'q' then
      queues[#queues + 1] = s
    elseif byte(ARGV[at + 1]) == 108 then
      s.of_limit = tonumber(sub(ARGV[at + 1], 2))
      values[#values + 1] = s
    else
      names[#names + 1] = s.name
      scopes[#scopes + 1] = s
    end
  end
  if #names > 0 then crowded = count_scopes(call.prefix .. 'counts:' .. MINUTE, keys.ranks, TOP, scopes, names, KEEP) end
  if #values > 0 then count_values(MINUTE, values) end
  if QUEUES then watch(call.prefix .. 'watched:' .. MINUTE, queues, QUEUES, crowded, KEEP) end
  return { 'counted' }
end
