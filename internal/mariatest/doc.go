// Package mariatest gives tests a real MariaDB of their own, beside package pgtest: to use, to kill and to start again.
//
// It listens on a socket in a folder of its own, on no port, and asks for no password: whoever may enter the folder may do all. Its log is written at
// each commit, but not by fsync: what a killed process has written is with the kernel, and there after Restart; only a power cut would lose it. It
// needs the server alone (Debian: mariadb-server-core), no service and no tables of users. A machine without MariaDB fails these tests; only -short
// leaves them out.
package mariatest
