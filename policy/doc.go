// Package policy says which limit and which weight applies to whom. It is pure: a Policy is a document that
// operators write, Prepare turns it into a Compiled that answers without allocating, and nothing here knows a
// store or a clock.
//
// What applies at each level of a job's way, the first that is configured:
//
//	global    Policy.Global
//	tenant    the tenant's own limit, else its tier's
//	queue     Policy.QueueLimits["tenant:queue"], else as below
//	priority  Policy.PriorityLimits["tenant:queue:priority"], else as below
//	type      of a job, as below
//
// Limits of a queue, those of each of its classes and of each type of job, and the bounds of depth in a queue are looked for one by one, and the first that is
// there holds:
//
//	1 the tenant's own          QueueLimits, PriorityLimits, Overflows by "tenant:queue"
//	2 its tier's in the queue   Tiers[tier].Queues[queue]
//	3 the queue's               Queues[queue].EachTenant, Queues[queue].Overflow
//	4 its tier's in every queue Tiers[tier].Queues["*"]
//	5 every queue's             Queues["*"].EachTenant, Queues["*"].Overflow or Overflows["*:*"]
//
// A tenant has a bucket of its own each time, whosever the figures are. A limit of a queue and one of its class both hold, as do those of
// the levels above. A level without a limit is Disabled: nothing is checked or charged there. A weight is the tenant's own for the
// class, else its tier's, else 1. A tenant that nobody configured is of the tier "standard". A queue that nobody
// configured is as Queues["*"] says, or has headgate.DefaultClasses, a horizon of an hour, no longest wait, and dead-letters what expires and what
// was lost with three workers that were known to run it; it keeps 100,000 dead letters for any time.
//
// The zero Policy is Default: each zero field means the built-in value, as its comment says.
package policy
