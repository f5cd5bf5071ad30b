// Package stage puts the real product together for one run in one process, a store, a producer and a worker with its
// scheduler, and writes down what they say. It exists so that demo and replay drive exactly what a user runs, and
// differ only in what they enqueue and in what the handlers do.
//
//	Open ──▶ Enqueue … ┐
//	         Work    … ├──▶ Settle ──▶ (Work's ctx ends: the worker drains) ──▶ Census ──▶ Close
//
// Every key of a run stands under a prefix that nobody else has, so a Redis may be shared. Close removes them, or says
// how to.
package stage
