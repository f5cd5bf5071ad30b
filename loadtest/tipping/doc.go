// Package tipping measures from which load on a queue stays down after an upset that is over: its callers wait a second, ask again
// three times, and so send up to four times as much to a queue that is late (Bronson et al., "Metastable failures in distributed systems",
// HotOS 2021). Client, worker, scheduler and admission are those of the product on a deployment in memory, in the time of a synctest
// bubble: half a minute takes a tenth of a second, and who is beside it on the machine changes nothing.
//
//	a request ──▶ Enqueue ──▶ queue ──▶ 5 slots of 50 ms: 100 requests/s
//	   ▲            │ refused: again in 50 to 150 ms        │
//	   └────────────┴───── no answer within 1 s: again ◀────┘   at most three times
//
// Every point is one run at one load; the highest load from which a queue comes back is found by halving, once a seed. `make tipping` runs
// fifty seeds and prints how they are distributed, docs/perf/load-test.md says what came of it, and the test of the package a few.
package tipping
