// Package relay holds the commands that work on an SQL database: headgate outbox, which moves jobs from one in which applications committed them, and
// headgate mirror, which copies what Redis keeps for a time only into one.
package relay
