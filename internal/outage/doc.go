// Package outage says in a log that a Redis is away: once when it goes, once when it is back, however many goroutines of a worker or a
// scheduler call it. It exists because each of them would say so for itself, a hundred lines in a failover of seconds.
package outage
