// Package api holds the handlers of the admin API: what each route does, and what it shows. Who may call them, how often
// and with which bodies is decided before, by package admin; a handler that reaches a tenant's things asks
// route.Request.Bind which tenant that may be. What workers in other languages call is in package sessions.
//
// Views have the names of the description (package openapi); durations are milliseconds, times are RFC 3339 in UTC and
// what does not apply is left out.
package api
