// Headgate-sqlite is the commands headgate outbox and headgate mirror with SQLite, and nothing else. It is a module of its own, because SQLite's driver takes half a
// minute of a core to compile and has no place in anybody else's go.sum. Its test runs the rules of both, and storms, on SQLite.
package main
