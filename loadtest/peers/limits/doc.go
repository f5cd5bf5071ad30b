// Package limits measures each of Headgate's algorithms of limits beside libraries that have it, in one run on one machine:
//
//	go test -C loadtest/peers -run '^$' -bench . -benchtime 1x ./limits/...
//
// What is measured is in this package, so that package gubernator, which alone compiles gubernator, measures by the same code.
//
//	Speed      64 callers of one process ask for 1,000 tenants, whose limits admit all; checks a second, and microseconds of the processor
//	           of Redis a check
//	Exactness  four instances, as four processes have, ask by Arrivals for one tenant: the most that was admitted in any window, and what
//	           was admitted of what could be
package limits
