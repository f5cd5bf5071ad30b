// Package account keeps the account of the hot paths that docs/perf/account.md prints: what a call of the SDK on the way of a job
// costs, in commands of Redis by name, in Redis's time, in bytes on the wire and in Go's allocations. It holds no code of
// the product.
//
//	site_test                              a partition on a real Redis, and what can be done there
//	check_, admit_, finish_, timers_test   the calls, a row for each branch of a script; seldom_ are those of few jobs
//	measure_test                           MONITOR, commandstats, a connection that counts, the memory statistics
//	table_test                             the table's text, there and back
//	account_test                           what is measured is what the table says, and each of its commands is explained
//
// The table is the golden: `go test ./internal/account -update` measures all anew and writes it. Without -update, commands
// must be those of the table to the last one, bytes within 3 % and allocations within 10 %; a microsecond is not compared,
// nor are allocations under the race detector, which makes its own.
//
// # What is left out
//
// A script asks for some things now and then, by the clock: INFO memory ten times a second (a field of the state says when, which
// noteMemory keeps fresh), PEXPIREAT of a tenant's buckets every two seconds at most, UNLINK of a generation of ended ids once a
// window. So a row is what most of its calls send.
package account
