// Package sessions is for workers in other languages: they register over HTTP, are handed jobs by leases, and say how each ended. A session
// is registered in every partition, and its name says all that a server must know of it, so any server can serve any call.
//
//	sessions  register, extend, deregister; what is due is promoted by the calls   New, Routes
//	leases    hands jobs out, waiting for them if it is asked to                   taking, retry
//	endings   complete, fail, release
//	outcomes  what that says of the downstream, for the fleet's circuit breaker    gates
//	heard     what is kept of each session, as long as this server hears of it
//	loads     how busy sessions are, told as a worker in Go tells of itself
//	shares    how the slots of a session go to the partitions
package sessions
