// Package redisconn is what package store and the rooms that stand on it (migrate, doctor) share below the API: the Redis of a partition with its keys and
// scripts, the fields of its state that say how it is laid out, which error means what, and the small readers of replies.
//
//	migrate doctor ──┬── store ──┐
//	                 └───────────┴── redisconn ── Redis
//
// A room that needs more of a store than its methods asks it for its Conn.
package redisconn
