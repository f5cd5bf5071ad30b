// Package redisclient holds the one set of go-redis settings of the house. It exists so that the store that a program
// opens, the embedded one and those of tests all fail, wait and retry in the same way.
package redisclient
