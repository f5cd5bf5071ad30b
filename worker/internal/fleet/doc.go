// Package fleet is a process's part in the fleet's circuit breakers: what it hears of them, what calls come to, and a breaker of its own for
// each downstream. Workers and guests have it, once for each partition.
package fleet
