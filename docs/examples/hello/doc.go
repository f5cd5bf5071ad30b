// Command hello enqueues a job and runs it: the program of the README. Its test runs it on a Redis of its own.
package main
