// Package laws proves the laws of docs/DESIGN.md on a real Redis, from the outside: its tests see what an operator
// with a redis-cli sees, and drive the scripts through store.Partition as a service does. It holds no code of the product.
//
// The conformance suite of package lua holds the scripts equal to the pure packages, step by step, under a clock that
// the test sets. What is equal may be wrong together, and nothing there runs at once with anything else. So here each
// law is stated once more, without the model, on schedules with many processes, many tenants and the clock of Redis:
//
//	pattern_test, processes_test   L6   the class pattern, also over crashing processes
//	fairness_test, accounts_test   L7   cost over weight of any two tenants, over every interval
//	bound_test, charges_test       L1   the bound of every bucket under many producers; the exact charges
//	moved_test                     L1   the limits that loops move and operators scale meanwhile
//	live_test                      L1   a limit changed over HTTP, in force on every producer within a second
//	refusal_test                   L2   refusals that charge nothing and tell the truth
//	bounded_test, cost_test        L12  what is left when all is over; what idle and waiting tenants cost
//	gates_test                     L12 W   thousands of lanes behind one gate
//	reclaim_test                   L4 L5   a worker that dies with its hands full
//	retry_test                     L12  many retries that are due at once
//
// # Runnable, as seen from outside
//
// L6 and L7 hold while tenants are runnable. These tests keep books of their own: a tenant is runnable in a class from
// the call that gives it a job in an open lane to the dispatch of its last such job. A lane is open when neither its
// downstream nor its tenant has a gate at all; after a gate was removed, not before the timer that goes on waking its
// waiters is gone. That is less often than by the law, so a fault shown is one.
//
// # Order, as seen from outside
//
// A dispatch is an entry of a pool's ready stream. Redis gives its id, which grows, so the ids are the order of all
// dispatches of a pool, whoever caused them. XINFO tells how many entries there ever were, so that a test that has
// collected that many has missed none.
//
// # Seeds
//
// Schedules are drawn from a seed that a failing test prints; HEADGATE_SEED repeats it. Redis's clock is not repeated.
// Clock steps are not tested here: a server's clock cannot be set, and the conformance suite gives its own.
package laws
