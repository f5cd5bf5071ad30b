-- bytes: integers as big-endian bytes.
local floor, sub, byte, char = math.floor, string.sub, string.byte, string.char

local struct_pack, struct_unpack = struct.pack, struct.unpack

local function u64(n) return struct_pack('>I8', n) end

local function number_at(s, at) return (struct_unpack('>I8', s, at)) end

local function cost_at(s, at) return (struct_unpack('>I4', s, at)) end

-- score: scores of a ZSET. The embedded store writes 8e+8, which its tonumber does not read.
local function score_of(s)
  return tonumber(s) or s + 0
end
