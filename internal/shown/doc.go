// Package shown holds what is shown of a deployment as JSON, the same over HTTP (package admin) as by the command line with
// --json, so that a program that reads one reads the other.
//
// Durations are milliseconds, times are RFC 3339 in UTC, and what does not apply is left out.
package shown
