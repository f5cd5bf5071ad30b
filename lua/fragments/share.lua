-- @include state
-- share: bounds that all partitions divide among them. `shares` maps the gate of each to "whole|units|of|partitions": of the
-- whole that the policy allows, this partition has units/of, at first 1/partitions, and those of all partitions add up to 1 at
-- most (balance.go). The whole is empty where the policy has the bound no more. The global bucket has no gate: callers bring the
-- even part of its rate, and `gm` is the multiple of it that this partition has. Bursts stay divided evenly.
local SHARES = P .. 'shares'

local function share_parse(text)
  local whole, units, of, parts = match(text, '^([^|]*)|(%d+)|(%d+)|(%d+)$')
  return { whole = whole, units = tonumber(units), of = tonumber(of), parts = tonumber(parts) }
end

-- share_read returns what there is of a bound, nil for nothing.
local function share_read(name)
  local text = redis.call('HGET', SHARES, name)
  return text and share_parse(text) or nil
end

local function share_is_even(s) return s.units * s.parts == s.of end

-- share_write forgets an even share of a bound that has gone: another one under its name begins with the same.
local function share_write(name, s)
  if s.whole == '' and share_is_even(s) then
    redis.call('HDEL', SHARES, name)
  else
    redis.call('HSET', SHARES, name, format('%s|%d|%d|%d', s.whole, s.units, s.of, s.parts))
  end
end

-- share_cap returns this partition's part of a cap: never none, which would be a pause. So after an edit that lowers a cap below
-- what the parts can divide, those of all may be above it until they have been balanced.
local function share_cap(s)
  return math.max(1, math.floor(tonumber(s.whole) * s.units / s.of))
end

-- share_rate returns this partition's part of a rate.
local function share_rate(s)
  return tonumber(s.whole) * s.units / s.of
end
