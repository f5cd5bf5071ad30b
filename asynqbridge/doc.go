// Package asynqbridge lets users of github.com/hibiken/asynq have Headgate's admission, fairness and circuit breakers
// without moving their workers: asynq's servers, Inspector, asynqmon and command line stay as they are. It has three
// parts, of which each works without the others:
//
//	Client    in the place of asynq.Client: asks the four token buckets on a task's way before it hands the task on
//	Fair      in the place of asynq.Client: tasks wait in Headgate, and a Releaser hands them to asynq while its
//	          list of pending tasks is short, so that they are served by Headgate's order, not by asynq's
//	Breaker   middleware for asynq's handlers, which call under the circuit breakers of the fleet, with Headgate's own
//	          workers: while what they call is ill, it pauses their asynq queues, for a time
//
// asynq's Redis and Headgate's may be one or two. docs/ASYNQ.md leads from asynq alone over these to Headgate's own
// workers, each step reversible.
package asynqbridge
