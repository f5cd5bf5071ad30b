-- @include place
-- @include record
-- job_return puts a job back where it stood, same seq and same score. A job past its deadline expires.
local function job_return(key, rec, now)
  if not rec then return leave_plain(key, 'record_gone') end
  local tenant, id = key_split(key)
  local r = record_read(rec)
  local q = queue_open(r.queue)
  if byte(r.lane) == 100 and r.score < now then
    job_expire(q, key, rec, now)
  else
    old_add(key, rec)
    lane_place(class_open(q, r.class + 1), tenant, r.lane, r.score, r.order .. id)
  end
end
