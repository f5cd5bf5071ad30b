// Package child runs one redis-server (or valkey-server) as a private child of this process. It exists because
// two packages need the same care: embedded, which gives a user without Redis a store, and redistest, which gives
// the tests one that they may kill.
//
// What the care is:
//
//   - The server dies with its parent, however the parent dies. On Linux the kernel sees to it (a parent-death
//     signal); elsewhere a parent that is killed leaves the server behind. The kernel watches the thread that
//     forked, not the process, so the goroutine that starts the server keeps its thread until the server ends.
//   - The port is free, stays this server's over a restart, and no client can meet itself on it. It is picked
//     below the range that the kernel gives to outgoing connections: a client that redials a dead server on a
//     port of that range is sooner or later given the very port it dials, and then talks to itself.
//   - Ready means that this very process answers, not another that took the port in between, and that it has
//     loaded its data.
//
// It speaks to the server with a handful of bytes of its own and imports no client.
package child
