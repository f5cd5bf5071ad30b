// Package database opens the SQL database that a command is told of, by the address in a file or in an environment variable, which is never shown.
package database
