-- @include gate
-- share: bounds that all partitions divide among them. `shares` maps the gate of each to "whole|units|of|partitions": of the
-- whole that the policy allows, this partition has units/of, at first 1/partitions, and those of all partitions add up to 1 at
-- most (balance.go). The whole is empty where the policy has the bound no more. The global bucket has no gate: callers bring the
-- even part of its rate, and `gm` is the multiple of it that this partition has. Bursts stay divided evenly.

local function share_parse(text)
  local whole, units, of, parts = match(text, '^([^|]*)|(%d+)|(%d+)|(%d+)$')
  return { whole = whole, units = tonumber(units), of = tonumber(of), parts = tonumber(parts) }
end

-- share_read returns what there is of a bound, nil for nothing.
local function share_read(name)
  local text = redis.call('HGET', keys.shares, name)
  return text and share_parse(text) or nil
end

local function share_is_even(s) return s.units * s.parts == s.of end

-- share_write forgets an even share of a bound that has gone: another one under its name begins with the same.
local function share_write(name, s)
  if s.whole == '' and share_is_even(s) then
    redis.call('HDEL', keys.shares, name)
  else
    redis.call('HSET', keys.shares, name, format('%s|%d|%d|%d', s.whole, s.units, s.of, s.parts))
  end
end

-- NO_SHARE is the limit of a cap of which this partition has no whole unit, as after an edit that lowered it far: shut until shares
-- are balanced, while 0 is a pause.
local NO_SHARE = -1

-- share_cap returns this partition's part of a cap.
local function share_cap(s)
  local units = floor(tonumber(s.whole) * s.units / s.of)
  return units > 0 and units or NO_SHARE
end

-- share_in_force returns the limit of the gate of a cap, under a pause the one that it leaves behind; nothing where there is none.
local function share_in_force(g)
  if not g or g.default then return nil end
  return g.limit ~= 0 and g.limit or tonumber((match(g.rest, '^%d+|(%-?%d*)|')))
end

-- share_rate returns this partition's part of a rate.
local function share_rate(s)
  return tonumber(s.whole) * s.units / s.of
end
