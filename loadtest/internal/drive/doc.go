// Package drive runs one plan through one system and returns what happened. It exists to be the only place where a load
// test has goroutines:
//
//	         start                            last arrival          nothing left, or quiet
//	pace     │ one goroutine a job, at its time │
//	world    │ downstreams die, Redis restarts…             │
//	watch    │ states of breakers, every 20 ms                                      │
//	worker  ─┼────────────────────────────────────────────────────────────────────┼─ drains
//	                                            settle ──────────────────────────── account
//
// A System is what it drives: package system has those that there are.
//
// Arrivals are open-loop: a job is sent at its time whether or not those before it were answered, and every latency
// counts from that time, not from when the generator got round to it. So a system that stalls is charged with the stall
// by every job that came meanwhile (no coordinated omission). How late the generator itself was is told apart.
package drive
