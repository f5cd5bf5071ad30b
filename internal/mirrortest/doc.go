// Package mirrortest is what a mirror has to do on any database: its rules one by one (Suite), and a storm that kills everybody (Storm). The tests of
// package mirror run it on PostgreSQL and MariaDB, those of the module cmd/headgate/sqlite on SQLite.
//
// Processes that are killed are the test's own binary in another role; so the test's TestMain calls Main.
package mirrortest
