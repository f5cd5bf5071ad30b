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
-- newcomers_rank ranks scopes of a call, by their numbers in it, that have no rank (the algorithm Space-Saving: a newcomer takes the place, and the
-- rank, of the last; of two with one rank a newcomer stays). It returns the names of those that were there before and made room, and notes
-- which newcomers did in `out`.
local function newcomers_rank(c, newcomers)
  local free, gone, line, head = c.top - redis.call('ZCARD', c.ranks), {}, {}, 1
  local last, at = #newcomers > free and redis.call('ZRANGE', c.ranks, 0, #newcomers - free - 1, 'WITHSCORES') or {}, 1
  for _, i in ipairs(newcomers) do
    local place, below = { i = i }, 0
    if free > 0 then
      free = free - 1
    elseif last[at] and not (line[head] and line[head].rank < tonumber(last[at + 1])) then
      gone[#gone + 1], below, at = last[at], tonumber(last[at + 1]), at + 2
    else
      below, c.out[line[head].i], head = line[head].rank, true, head + 1
    end
    place.rank = below + c.scopes[i].n
    local k = #line + 1
    while k > head and line[k - 1].rank > place.rank do
      line[k], k = line[k - 1], k - 1
    end
    line[k] = place
  end
  local places = {}
  for k = head, #line do
    places[#places + 1], places[#places + 2] = line[k].rank, c.names[line[k].i]
  end
  if #gone > 0 then redis.call('ZREM', c.ranks, unpack(gone)) end
  redis.call('ZADD', c.ranks, unpack(places))
  return gone
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
  local ranked, stored = redis.call('ZMSCORE', ranks, unpack(names)), redis.call('HMGET', counts, unpack(names))
  local c = { names = names, scopes = scopes, ranks = ranks, top = top, out = {} }
  local newcomers, risen, risen_at, gone = {}, {}, {}, {}
  for i, s in ipairs(scopes) do
    s.n = s.of_limit or s.admitted + s.refused
    if ranked[i] and not s.always then
      risen[#risen + 1], risen[#risen + 2], risen_at[names[i]] = ranked[i] + s.n, names[i], i
    elseif not s.always then
      newcomers[#newcomers + 1], s.fresh = i, true
    end
  end
  if #risen > 0 then redis.call('ZADD', ranks, unpack(risen)) end
  if #newcomers > 0 then gone = newcomers_rank(c, newcomers) end
  for _, name in ipairs(gone) do
    if risen_at[name] then c.out[risen_at[name]] = true end
  end
  local written = {}
  for i, s in ipairs(scopes) do
    local a, r, t, partial = match(stored[i] or '', '^(%d+):(%d+):(%d+):(%d)$')
    if c.out[i] then
      gone[#gone + 1] = names[i]
    else
      written[#written + 1] = names[i]
      written[#written + 1] = format('%d:%d:%d:%d', s.admitted + (a or 0), s.refused + (r or 0), s.tokens + (t or 0), partial or s.fresh and 1 or 0)
    end
  end
  if #gone > 0 then redis.call('HDEL', counts, unpack(gone)) end
  if #written > 0 then redis.call('HSET', counts, unpack(written)) end
  redis.call('EXPIRE', counts, keep)
  redis.call('EXPIRE', ranks, keep)
  return #gone > 0
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
