// Package dbtest gives tests a real PostgreSQL or MariaDB of their own, beside package redistest: to use, to kill and to start again.
//
// A server listens on a socket in a folder of its own, on no port, and asks for no password: whoever may enter the folder may do all. What a
// killed process has written is with the kernel, and there after Restart; only a power cut would lose it, since nothing is written by fsync.
// A machine without the server fails these tests; only -short leaves them out.
package dbtest
