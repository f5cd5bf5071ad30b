// Package jobs is the path of a job in one partition: in (admit), to a worker (register, read), out (finish), what time alone makes due
// (promote), and what is done to single jobs from outside.
package jobs
