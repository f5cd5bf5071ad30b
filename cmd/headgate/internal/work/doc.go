// Package work holds the command headgate worker, which hands jobs to an HTTP server or to a command.
//
//	worker   the command, and what jobs are handed to
//	options  what a configuration tells a worker and those that deliver (package deliver)
//	journal  logs what became of jobs
//	meter    shows it as metrics
package work
