-- header: a job's value in the jobs hash. Bytes, counted from 1:
--   1 version · 2 flags · 3 class, from 0 · 4 attempts · 5 max attempts · 6 suspicion: 0, or 1 + the deliveries lost that
--   count · 7-14 seq · 15-22 score, 23-30 arrival, in microseconds · 31-34 cost in tokens · 35 length of queue · 36 length
--   of downstream · 37 queue, downstream, and the body, opaque here
-- Flags: 1 has a deadline · 2 payload under a key of its own · 4 the deadline is its queue's longest wait · 8 counts in
-- the depth of its tenant and queue · 32 has a history · 16 and 64 a unique key, released: 16 at the end, 64 at the start, both when
-- its time is over · 128 on the way into admit, and while spilled: starts later.
-- Integers are big-endian. A lane's member is seq (8 bytes), cost (4), id.
local COST_AT, QUEUE_AT = 31, 37
local LARGE, TIMED, COUNTED, UNIQUE_END, HISTORY, UNIQUE_START = 2, 4, 8, 16, 32, 64

local function has_flag(flags, bit)
  return floor(flags / bit) % 2 == 1
end

local function record_has(rec, bit)
  return has_flag(byte(rec, 2), bit)
end

local function record_flagged(rec, bit)
  if record_has(rec, bit) then return rec end
  return sub(rec, 1, 1) .. char(byte(rec, 2) + bit) .. sub(rec, 3)
end

local function record_queue(rec)
  return sub(rec, QUEUE_AT, QUEUE_AT + byte(rec, 35) - 1)
end

-- record_lane returns the lane that a record's deadline and downstream name.
local function record_lane(rec)
  local kind = byte(rec, 2) % 2 == 1 and 'd' or 'n'
  local queue_length, downstream_length = byte(rec, 35, 36)
  if downstream_length == 0 then return kind end
  local at = QUEUE_AT + queue_length
  return kind .. sub(rec, at, at + downstream_length - 1)
end

-- record_read reads it.
local function record_read(rec)
  local _, flags, class, attempts, max, suspicion = byte(rec, 1, 6)
  return {
    flags = flags, class = class, attempts = attempts, max = max, suspicion = suspicion,
    score = number_at(rec, 15),
    queue = record_queue(rec),
    lane = record_lane(rec),
    order = sub(rec, 7, 14) .. sub(rec, COST_AT, COST_AT + 3),
  }
end

local function key_split(key)
  return match(key, '^([^:]*):(.*)$')
end

-- record_recount returns rec with other attempts and another suspicion.
local function record_recount(rec, attempts, suspicion)
  return sub(rec, 1, 3) .. char(attempts) .. sub(rec, 5, 5) .. char(suspicion) .. sub(rec, 7)
end

-- history: what became of a job's deliveries that did not complete it, the last HISTORY_CAP of them in a LIST log:KEY:
-- outcome|time|time it ran|worker|text, times in microseconds.
local HISTORY_CAP = 20

-- history_add returns the record that says so; the caller stores it.
local function history_add(key, rec, outcome, ran, worker, text, now)
  local list = call.prefix .. 'log:' .. key
  redis.call('RPUSH', list, format('%s|%d|%d|%s|', outcome, now, ran, worker) .. text)
  redis.call('LTRIM', list, -HISTORY_CAP, -1)
  return record_flagged(rec, HISTORY)
end
