// Package bank keeps token buckets in memory, as the scripts of package lua keep them in Redis: those of a tenant up to so many, and until all
// of them are full. A Charge is a call that asks them: it costs what it touches, and can be taken back. Leases
// are tokens of a scope that limiters spend by themselves.
package bank
