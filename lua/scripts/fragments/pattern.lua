-- @include state
-- pattern: of Σ weights consecutive picks, w[i] are i's, in order, while all can run; one that cannot forfeits
-- the rest of its turn. pattern_next only looks; pattern_commit moves the phase.
local function pattern_next(p, can_run)
  if p.left > 0 and can_run(p, p.cur) then return p.cur end
  for k = 1, p.n do
    local i = (p.cur + k - 1) % p.n + 1
    if can_run(p, i) then return i end
  end
end

local function pattern_commit(p, i)
  if i == p.cur and p.left > 0 then
    p.left = p.left - 1
  else
    p.cur, p.left = i, p.w[i] - 1
  end
end
