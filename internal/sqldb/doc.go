// Package sqldb is what package outbox and package mirror have of a database through database/sql: its dialect, the migrations of tables and who
// may work on them. It links no driver.
//
// The lock of who works is its connection's, on PostgreSQL and MySQL: it is free once the database knows that the connection is gone. On SQLite,
// which has no such lock, it is a row with a lease.
package sqldb
