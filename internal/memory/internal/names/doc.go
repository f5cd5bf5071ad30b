// Package names keeps what is known by a name and not by a job: unique keys and who holds them, queues that jobs have made, the results of
// jobs that have left, and rights that only so many may have at once. Before and After compare the names of entries, their tokens.
package names
