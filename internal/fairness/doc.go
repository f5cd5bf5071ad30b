// Package fairness says how evenly tenants were served while they competed. It exists because two programs, the replay
// and the load test, ask that of their records, and because the question is easily asked wrongly: a tenant that had
// nothing waiting was not treated unfairly, so only such times count in which each of the compared had work.
//
// A Spell is such a time of one tenant, told as the places of its dispatches in the log of its class. Compare finds the
// span of that log over which the most tenants were runnable throughout and were each dispatched Rounds times, and
// returns Jain's index of their service divided by weight (Jain, Chiu and Hawe, DEC-TR-301, 1984):
//
//	(Σx)² / (n·Σx²)      1 for perfectly even, 1/n when one of n gets everything
package fairness
