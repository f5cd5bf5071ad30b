// Package record holds what became of each job of a run: one Entry a job, written where things happen. It exists so that
// measuring costs a few stores to memory that nobody else touches, and all sums are made after the run, from the same
// entries for every system.
//
// Times are nanoseconds since the start of the run, by the monotonic clock; zero means never.
package record
