// Package redisconn is the Redis of a partition, for store/redisstore, its rooms, and those that stand on it (migrate, doctor): how a script
// is sent and what an error means, the fields of the state that say how a deployment is laid out, pages of sets and hashes, a connection
// to block on, and the small readers of replies.
//
//	migrate doctor ── store/redisstore ── its rooms ──┐
//	      └───────────────────┴───────────────────────┴── redisconn ── Redis
//
// A room that needs more of a store than its methods asks it for its Conn.
package redisconn
