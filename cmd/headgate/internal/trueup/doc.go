// Package trueup replays calls whose cost was known only when they ended, from a trace with columns of tokens, in front of one limit: by several
// estimates, each once with what was reserved as the cost and once trued up as the call ends. It exists to show what a limit on estimates lets
// through, and what reserve and commit make of it, on somebody's own traffic.
//
// Buckets are those of package buckets, the specification of what Redis does, and their clock is the trace's: nothing is scaled, and the same file
// gives the same figures.
package trueup
