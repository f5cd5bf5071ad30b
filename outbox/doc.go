// Package outbox puts jobs in with the caller's own database transaction: a job enters if and only if the transaction commits.
//
//	application                        database                         relay (headgate outbox)          Headgate
//	tx: INSERT INTO orders …           ┌─────────────────────┐  claim   ┌───────────────────┐ EnqueueBatch
//	    Enqueue(ctx, tx, job) ───────▶ │ headgate_outbox     │ ───────▶ │ tenant after      │ ─────────▶ admitted, duplicate: row deleted
//	    COMMIT                         │ headgate_outbox_dead│ ◀─────── │ tenant in order   │            refused: waits as the verdict says
//	                                   └─────────────────────┘  settle  └───────────────────┘            final: to the dead rows
//
// Enqueue is one INSERT; it needs database/sql and no driver, and asks nothing of Redis. Migrate makes the tables. A Relay moves the rows;
// of several on one database one works, and the others stand by. The functions are those of PostgreSQL; MySQL (and MariaDB) and SQLite are a
// Dialect, with the same as methods: outbox.MySQL.Enqueue(ctx, tx, job).
//
// The lock of the relay that works is its connection's, on PostgreSQL and MySQL: it is free once the database knows that the connection is gone. On
// SQLite it is a row with a lease of five time-outs and two polls, 10.5 s unless they say otherwise, and a relay that took longer settles nothing.
//
// # What holds
//
// Once. The row has the job's id. Before rows are sent they are marked, in a statement of their own; after they are in, they are deleted.
// A relay that dies in between finds them marked and sends the same ids again, which are duplicates while Headgate remembers them: as long as
// the job lives, and for the dedup window after it. A marked row that is older than that window cannot be told from one that has run and is
// forgotten. It is not sent: it becomes a dead row of the reason "doubt", and a person decides (Redrive).
//
// None skipped. Rows are claimed because they are there, not by a cursor, so a transaction that commits late with an early number is found.
//
// Order. The jobs of a tenant are sent in the order of their numbers. A refusal that passes (limited, overflow, paused, …) holds back the
// tenant's later rows until the verdict's RetryAfter; others go on. Jobs of one call are decided on one by one, so rows of a tenant share a
// call only if they ask for the same: queue, class, type, downstream and cost. The bounds of bytes, and those of waits where the policy refuses what
// is doomed, are the exception: there a smaller job may pass a larger one of the same call, and one with more time, or none to keep, one with less.
//
// Final. A row that no wait helps becomes a dead row with its reason, and holds nobody back: what is no valid job, too costly, too large, past
// its deadline, or whose unique key another job holds.
package outbox
