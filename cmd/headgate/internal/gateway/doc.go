// Package gateway answers proxies that ask about requests before they pass them on, beside the API of headgate serve: over HTTP (package httplimit) and as
// Envoy's rate limit service (package rls), each at a listener of its own.
package gateway
