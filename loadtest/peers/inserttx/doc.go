// Package inserttx measures a job in the caller's own transaction beside river's InsertTx, in one run on one PostgreSQL: an order and its job,
// committed together by eight connections of pgx, in orders a second; and what moves the rows of the outbox on, in rows a second:
//
//	go test -C loadtest/peers -run '^$' -bench . -benchtime 1x ./inserttx
//
// River's jobs stay in PostgreSQL, from where its workers take them. A job of the outbox goes on to Redis, which is the price of
// what stands there: limits and fair shares.
package inserttx
