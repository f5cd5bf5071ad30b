-- @include state
-- record: a job's value in the jobs hash. Bytes, counted from 1:
--   1 version · 2 flags (1 has a deadline, 2 payload under a key of its own) · 3 class, from 0 · 4 attempts
--   5 max attempts · 6 deliveries lost · 7-14 seq · 15-22 score, 23-30 arrival, in microseconds
--   31-34 cost in tokens · 35 length of queue · 36 length of downstream · 37 queue, downstream, and the body,
--   opaque here
-- Integers are big-endian. A lane's member is seq (8 bytes), cost (4), id.
local COST_AT, QUEUE_AT = 31, 37
local function u64(n)
  local high = floor(n / 4294967296)
  local low = n - high * 4294967296
  return char(floor(high / 16777216), floor(high / 65536) % 256, floor(high / 256) % 256, high % 256,
    floor(low / 16777216), floor(low / 65536) % 256, floor(low / 256) % 256, low % 256)
end

local function number_at(s, at)
  local a, b, c, d, e, f, g, h = byte(s, at, at + 7)
  return (((a * 256 + b) * 256 + c) * 256 + d) * 4294967296 + ((e * 256 + f) * 256 + g) * 256 + h
end

local function cost_at(s, at)
  local a, b, c, d = byte(s, at, at + 3)
  return ((a * 256 + b) * 256 + c) * 256 + d
end

-- record_lane returns the lane that a record's deadline and downstream name.
local function record_lane(rec)
  local _, flags = byte(rec, 1, 2)
  local queue_length, downstream_length = byte(rec, 35, 36)
  local at = QUEUE_AT + queue_length
  return (flags % 2 == 1 and 'd' or 'n') .. sub(rec, at, at + downstream_length - 1)
end

local function record_read(rec)
  local _, flags, class, attempts, max, lost = byte(rec, 1, 6)
  return {
    flags = flags, class = class, attempts = attempts, max = max, lost = lost,
    score = number_at(rec, 15),
    queue = sub(rec, QUEUE_AT, QUEUE_AT + byte(rec, 35) - 1),
    lane = record_lane(rec),
    order = sub(rec, 7, 14) .. sub(rec, COST_AT, COST_AT + 3),
  }
end

-- record_stamp returns what a producer sent with seq, score and arrival filled in.
local function record_stamp(rec, seq, score, arrival)
  return sub(rec, 1, 6) .. seq .. u64(score) .. u64(arrival) .. sub(rec, COST_AT)
end

-- record_recount returns rec with other attempts and deliveries lost.
local function record_recount(rec, attempts, lost)
  return sub(rec, 1, 3) .. char(attempts) .. sub(rec, 5, 5) .. char(lost) .. sub(rec, 7)
end

local function key_split(key)
  return match(key, '^([^:]*):(.*)$')
end
