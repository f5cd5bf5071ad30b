// Command scale says what a load would take that no machine here can bear: shards of Redis, memory and network, from what one
// job was measured to cost. It reads the table of measured costs in docs/EXTRAPOLATION.md, where the assumptions are too,
// and prints the other one.
//
//	go run ./loadtest/scale
//
// A test compares what it prints with the document; with -update it writes it there.
package main
