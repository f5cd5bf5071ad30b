// Package calls measures headgate serve: decisions over HTTP at a rate, whatever their answers take, and beside them a few
// calls that read and change limits, as an operator's would. It exists because these are calls and no jobs: nothing waits,
// nothing runs, and what there is to know is how long the answers took from when each call was due.
//
// A server is either one that runs already, or a process of the binary that is started for the time of a run.
package calls
