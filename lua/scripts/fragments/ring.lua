-- @include state
-- ring: a sparse window of slices, the oldest first: "index,successes,failures,slow,slow ends;…". Slices are numbered
-- from the origin of the clock.
local function ring_parse(text)
  local ring = {}
  for index, ok, failed, slow, ends in string.gmatch(text, '(%d+),(%d+),(%d+),(%d+),(%d+)') do
    ring[#ring + 1] = { tonumber(index), tonumber(ok), tonumber(failed), tonumber(slow), tonumber(ends) }
  end
  return ring
end

-- ring_sum returns the calls that ended and failed, and those timed and slow, while a slice is in force.
local function ring_sum(ring, index, buckets)
  local ok, failed, slow, ends = 0, 0, 0, 0
  for _, slice in ipairs(ring) do
    if slice[1] > index - buckets then
      ok, failed, slow, ends = ok + slice[2], failed + slice[3], slow + slice[4], ends + slice[5]
    end
  end
  return ok + failed, failed, ok + failed - ends + slow, slow
end
