// Package sorted keeps values in order: a list of short runs, so that to find, add or take out one of a million is a matter of
// microseconds.
package sorted
