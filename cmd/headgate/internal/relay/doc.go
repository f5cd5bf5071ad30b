// Package relay holds the command headgate outbox, which moves jobs from a database in which applications committed them.
package relay
