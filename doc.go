// Package headgate is an admission layer for job queues on Redis. Its names are those of package admission, the vocabulary of the
// rooms behind it: producer, worker, scheduler, limiter and admin, on the store that package lua opens.
package headgate
