// Package relay holds the command headgate outbox, which moves jobs from a PostgreSQL in which applications committed them.
package relay
