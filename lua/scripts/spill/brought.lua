-- brought gives spilled jobs their bodies back, which the second Redis still has, and lets them go on where there is room.
-- KEYS[1] state  hash; the partition's other keys share its hash tag and are named after it
-- ARGV[1] now  microseconds, "" for Redis TIME
-- ARGV[2] number  of the mover
-- ARGV[3] ...  of each copy its name, its record, "" if there is none, and its payload where that is a key of its own, else ""
-- Reply {"brought" | "more", how many, of how many there was no copy}, or {"stale"}: somebody else moves them now, and nothing was done
-- Never brings one back whose record here is whole, or of another job.
-- body_back puts a body in its place, and ends the job if its deadline has passed.
local function body_back(name, key, rec, payload, now)
  local first = redis.call('ZRANGE', call.prefix .. 'spill:' .. name, 0, 0)[1]
  redis.call('HSET', keys.jobs, key, rec)
  if payload ~= '' then redis.call('SET', call.prefix .. 'large:' .. key, payload) end
  far_leave(name, key)
  if byte(rec, 2) % 2 == 1 and number_at(rec, 15) < now then
    spill_remove(name, key, rec)
    job_expire(queue_open(record_queue(rec)), key, rec, now)
  elseif key == first then
    call.depth_freed[name] = 'goes on'
  end
end

function scripts.brought(KEYS, ARGV)
  local STATE, NOW, NUMBER, JOBS_AT, JOB_SIZE = KEYS[1], ARGV[1], ARGV[2], 3, 3
  local now = now_us(NOW)
  call.now = now

  call_begin(now, { 'mover' })
  if not mover_is(NUMBER) then return { 'stale' } end
  local brought, missing = 0, 0
  for i = JOBS_AT, #ARGV, JOB_SIZE do
    local key, stub = copy_job(ARGV[i])
    if stub and record_far(stub) then
      local name = depth_name(key, stub)
      if ARGV[i + 1] ~= '' then
        body_back(name, key, ARGV[i + 1], ARGV[i + 2], now)
        brought = brought + 1
      else
        spill_remove(name, key, stub)
        leave(key, 'record_gone', stub)
        missing = missing + 1
      end
    end
  end
  return { fill(now) and 'more' or 'brought', format('%d', brought), format('%d', missing) }
end
