// Command targets reads what benchmarks wrote, several rounds of it, and prints a table: each target of the project, what
// Headgate and its peer came to in the same rounds, and whether the target is reached.
//
//	go test … -bench … >> rounds.txt    once a round, so that rounds of all rows are interleaved
//	go run -C loadtest/peers ./targets "$PWD/rounds.txt"
//
// A figure is the median of its rounds, with the least and the most; a ratio is the median of the ratios of each round.
// `make bench` does both.
package main
