-- @include record
-- record_recount returns rec with other attempts and another suspicion.
local function record_recount(rec, attempts, suspicion)
  return sub(rec, 1, 3) .. char(attempts) .. sub(rec, 5, 5) .. char(suspicion) .. sub(rec, 7)
end
