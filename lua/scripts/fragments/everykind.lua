-- everykind: all kinds of gates, for whoever looks for what may outlast the last gate of its kind, as waiters do, or
-- precede the first.
local EVERY_KIND = { d = 1, b = 1, s = 1, t = 1, u = 1, r = 1, q = 1 }
