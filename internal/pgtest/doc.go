// Package pgtest gives tests a real PostgreSQL of their own, beside package redistest: to use, to kill and to start again.
//
// It listens on a socket in a folder of its own, on no port. As root it runs as the user postgres, since the server refuses root. It writes no
// fsync: what a killed process has written is with the kernel, and there after Restart; only a power cut would lose it. A machine without
// PostgreSQL fails these tests; only -short leaves them out.
package pgtest
