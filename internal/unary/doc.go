// Package unary serves unary calls of gRPC over HTTP/2 (RFC 9113), for a service of few methods whose answers are small: Envoy's rate limit service. It
// is what net/http's server and grpc-go are in the place of which it stands, without their cost: of a call by net/http some 45 of 50 µs of a processor
// were goroutines for each frame and a system call for each write (docs/perf/comparison.md); docs/adr/011-written-here.md has why it is written here.
//
//	read: frames of golang.org/x/net/http2 ──▶ streams ──▶ a goroutine for each whole message ──▶ Handler
//	                                                                                                 │
//	flush: one write of all that is ready  ◀── frames in a buffer, in the order of their making  ◀──┘
//
// A connection has one goroutine that reads, one that writes, and one for each call under way. All that it knows is behind one mutex, which nobody holds
// while it waits: frames are written to memory.
//
// # Bounds
//
// Of a connection: so many calls at a time, also of those whose client has given up; a message's size; what its messages hold together (a mebibyte, by
// flow control); the size of metadata; what waits to be written. Of time: the handshake, a frame and a message from their begin to their end, a write,
// and idleness. Whoever goes beyond is refused for the call, or loses the connection.
package unary
