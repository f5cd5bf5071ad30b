-- @include header
-- record: reads what header.lua draws.
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
