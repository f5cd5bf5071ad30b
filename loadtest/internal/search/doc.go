// Package search looks for the highest rate that a system sustains. It is pure: it asks a function that measures, so it
// can be tried on a system whose limit is known.
//
// First it doubles the rate until a measurement breaks the bound, or halves it until one holds: that brackets the limit.
// Then it measures in the geometric middle of the bracket, until the bracket is narrower than the precision. A rate that
// breaks the bound is measured again before that is believed.
package search
