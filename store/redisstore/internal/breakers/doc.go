// Package breakers is the circuit breakers of a fleet in one partition: outcomes that workers report, probes, what operators force, and
// what is told of them.
package breakers
