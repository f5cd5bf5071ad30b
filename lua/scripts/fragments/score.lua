-- score: scores of a ZSET. The embedded store writes 8e+8, which its tonumber does not read.
local function score_of(s)
  return tonumber(s) or s + 0
end
