-- group: the consumer group of every ready stream.
local GROUP = 'g'
