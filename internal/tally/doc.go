// Package tally counts in a process what limits decide, by scope, and stores the counts once a second. It exists because
// producers, limiters and the admin API all make decisions, which are to be counted in one way: exactly, and at no cost to a decision
// beside a map's.
package tally
