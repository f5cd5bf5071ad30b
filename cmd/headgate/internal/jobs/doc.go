// Package jobs holds the commands of headgate about jobs: to enqueue them, from flags or as JSON lines, to list, show and cancel those
// that live, and to list, purge and redrive the dead letters.
package jobs
