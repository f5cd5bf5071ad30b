// Command neighbour measures what one tenant can do to another through headgate serve: real processes on loopback, a Redis and a server of
// its own, and an attacker with a tenant's key and 128 connections, on each route that the key may call, in turn. It prints what the neighbour's
// checks and jobs took meanwhile beside what they take alone, as the table of docs/SECURITY.md, and lines that package
// loadtest/peers/targets reads (T17).
//
// Each route is measured between two rounds alone, so that a machine that grows slower is not taken for an attack that works.
package main
