// Package admission is the vocabulary of an admission layer for job queues on Redis: jobs, priority classes,
// scopes, limits, verdicts and errors. It does no work and imports only the standard library, so that every
// other package can speak it.
//
// A job's way through the house:
//
//	producer ──Enqueue──▶ admit     token buckets global → tenant → queue → priority, all or nothing
//	                        │
//	                        ▼
//	                   waiting room lanes of (queue, class, tenant, downstream)
//	                        │
//	                        ▼
//	                      fill      class pattern → tenant by virtual time → earliest deadline
//	                        │
//	                        ▼
//	                   ready stream one a pool of workers, never longer than their free slots
//	                        │
//	worker ───────────────▶ breaker gate ─▶ handler ─▶ finish
//
// Start with package producer to enqueue and package worker to run handlers; package lua opens the store that
// both share. docs/DESIGN.md holds the laws that bind all of them.
package admission
