// Package outboxtest is what an outbox has to do on any database: its rules one by one (Suite), and a storm that kills everybody (Storm). The tests of
// package outbox run it on PostgreSQL and MariaDB, those of the module outboxsqlite on SQLite, which is a module of its own for its driver.
//
// Processes that are killed are the test's own binary in another role; so the test's TestMain calls Main.
package outboxtest
