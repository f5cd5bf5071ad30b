-- @include record
-- record_recount returns rec with other attempts and deliveries lost.
local function record_recount(rec, attempts, lost)
  return sub(rec, 1, 3) .. char(attempts) .. sub(rec, 5, 5) .. char(lost) .. sub(rec, 7)
end
