// Package inhand is what a worker has in hand: its slots, the jobs that it holds, and what it knows of the clock of Redis.
package inhand
