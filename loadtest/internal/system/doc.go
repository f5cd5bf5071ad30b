// Package system makes the job queues under test answer to the same few verbs, so that a run drives Headgate and asynq by
// the same code, with the same plan, each on a Redis of its own. It exists to keep what differs between them in one
// place: how a job is named, which queues there are, what counts as out of attempts.
//
//	            Headgate                            asynq
//	a job       tenant, queue, class, downstream    a task in the queue QUEUE.CLASS; it knows no tenants
//	a class     of the 3:2:1 pattern                a queue of that weight, chosen by lot
//	admission   limits on every level, dedup        the task's id
//	breakers    one a downstream                    none
//	a cap       a gate of the queue                 none
//	idle        a worker blocks in Redis            looks once a second, or as often as told
//
// In asynq's worker there may be a limiter of what runs at a time, as those have who use one with a plain queue.
package system
