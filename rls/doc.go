// Package rls is Envoy's rate limit service over a limiter: envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit, and grpc.health.v1's
// Check, over HTTP/2 (package unary). It is for Envoy, Istio and whatever speaks to their rate limit service.
//
// A Mapping says which tenant, queue and class a descriptor is. Those of a call are asked together: all have their tokens, or none has, where
// envoyproxy/ratelimit charges the others for what one refuses. A descriptor that the Mapping does not know is OK, and counted.
//
// The two methods are unary, so what gRPC adds to HTTP/2 is a prefix of five bytes and two trailers, and the messages are read and written field by
// field (wire.go): grpc-go and the generated types of Envoy would be most of the binary.
package rls
