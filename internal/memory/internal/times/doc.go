// Package times keeps names until a time: what is to be forgotten, and what is due. To set one of a million, or to find the next, is a matter
// of microseconds. Nothing in it is safe for several goroutines.
package times
