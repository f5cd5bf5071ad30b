package lua

// Where a job's record has what, counted from 0; fragments/record.lua draws it. The queue's name follows the header.
const (
	AtSeq      = 6
	AtScore    = 14
	AtArrival  = 22
	AtCost     = 30
	AtQueueLen = 34
	AtDownLen  = 35
	HeaderSize = 36
)
