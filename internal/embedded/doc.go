// Package embedded opens the Redis that the binary runs on: the one whose address it was given, or one of its own when it was given none.
//
//	an address            that Redis: redis://, rediss:// or host:port
//	none, and there is    redis-server or valkey-server from PATH, as a private child on a free loopback port.
//	a server in PATH      It persists nothing and ends with this process.
//	none                  ErrNoServer, which says what to do. What can do without a Redis takes package internal/memory then.
//
// Nothing in a private child survives this process, by design: whoever wants to keep jobs runs a Redis and gives its address. It listens on
// the loopback interface without a password, so every user of the machine can reach it.
package embedded
