// Package circuits shows the circuit breakers that Redis keeps to Prometheus: a server does so, and so does a client's collector, under the same
// names. What several processes show is then the same, and the largest of it is right.
package circuits
