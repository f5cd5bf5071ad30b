// Package intake makes jobs of what a shell or another language writes: flags, or JSON lines, and enqueues them. It
// exists so that whoever has no Go can be a producer, with the verdicts and the batches of package producer.
//
// A line is one JSON object with the names of Spec. It is read strictly: unknown and repeated names, wrong types, text
// that is not UTF-8 and anything after the object make a bad line, which is reported with its number and costs the
// others nothing. So does a job that could never be valid. Empty lines are skipped.
//
//	lines ──▶ read, one goroutine ──▶ parse ──▶ batch ──▶ EnqueueBatch ──▶ Tally
//	                                   │ bad             when it is full or no further line is there yet
//	                                   └──▶ Tally
//
// Lines that come slowly are thus sent as they come, and those of a file 32 at a time. Once a batch gets no answer
// nothing further is sent: lines that name their ids can all be sent again, and each job enters once.
package intake
