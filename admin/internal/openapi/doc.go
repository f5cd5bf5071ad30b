// Package openapi holds the description of the admin API and lets it decide: bodies and query parameters are checked
// against its schemas (JSON Schema 2020-12) before a handler sees them, so that what it says is what holds, and all that
// is wrong with a request is told at once, each with its place.
package openapi
