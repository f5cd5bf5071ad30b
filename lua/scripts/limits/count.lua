-- count adds what a process has seen admitted and refused to the counts of this minute, of the scopes with the most.
-- KEYS[1] state  hash; the partition's other keys share its hash tag and are named after it
-- ARGV[1] now  microseconds, "" for Redis TIME
-- ARGV[2] top  largest number of scopes that are counted, those to be counted always apart
-- ARGV[3] keep  seconds that a minute is kept
-- ARGV[4] ...  of each scope: its name, "1" to count it always, jobs admitted, jobs refused, tokens asked for
-- Reply {"counted"}
-- Never keeps more than top scopes in a minute and those counted always: the one with the fewest makes room.
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
    local place = c.places[last[1]]
    if place then c.ranked[place], c.stored[place] = false, false end
  else
    c.size = c.size + 1
  end
  redis.call('ZADD', c.ranks, below + n, c.names[i])
  c.ranked[i] = true
  return true
end

function scripts.count(KEYS, ARGV)
  local STATE, NOW, TOP, KEEP = KEYS[1], ARGV[1], tonumber(ARGV[2]), ARGV[3]
  local SCOPES_AT, SCOPE_SIZE = 4, 5
  local COUNTS, RANKS = call.prefix .. 'counts:' .. format('%d', math.floor(now_us(NOW) / 60000000)), keys.ranks

  -- As a minute begins all ranks are halved, so that scopes of long ago do not stay.
  if redis.call('EXISTS', COUNTS) == 0 then
    redis.call('ZUNIONSTORE', RANKS, 1, RANKS, 'WEIGHTS', '0.5')
    redis.call('ZREMRANGEBYSCORE', RANKS, '-inf', '(1')
  end
  local names, places = {}, {}
  for at = SCOPES_AT, #ARGV, SCOPE_SIZE do
    names[#names + 1] = ARGV[at]
    places[ARGV[at]] = #names
  end
  local ranked, stored = redis.call('ZMSCORE', RANKS, unpack(names)), redis.call('HMGET', COUNTS, unpack(names))
  local c = { names = names, places = places, ranked = ranked, stored = stored, ranks = RANKS, counts = COUNTS, top = TOP,
    size = redis.call('ZCARD', RANKS) }

  for i, name in ipairs(names) do
    local at = SCOPES_AT + SCOPE_SIZE * (i - 1)
    local allowed, refused, tokens = tonumber(ARGV[at + 2]), tonumber(ARGV[at + 3]), tonumber(ARGV[at + 4])
    local fresh = ARGV[at + 1] ~= '1' and rank(c, i, allowed + refused)
    local a, r, t, partial = match(stored[i] or '', '^(%d+):(%d+):(%d+):(%d)$')
    partial = partial or fresh and 1 or 0
    redis.call('HSET', COUNTS, name, format('%d:%d:%d:%d', allowed + (a or 0), refused + (r or 0), tokens + (t or 0), partial))
  end
  redis.call('EXPIRE', COUNTS, KEEP)
  redis.call('EXPIRE', RANKS, KEEP)
  return { 'counted' }
end
