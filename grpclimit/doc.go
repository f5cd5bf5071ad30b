// Package grpclimit puts a limiter in front of the methods of a gRPC server: interceptors for unary calls and for streams, as package httplimit is
// for HTTP handlers. It is a module of its own, so that nobody else has grpc-go in a go.sum.
//
//	call ─▶ Skip? ─▶ who (Tenant), where (Queue, Class), how much (Cost) ─▶ limiter ─┬─ admitted ─▶ the method
//	                                                                                 ├─ a limit refuses ─▶ RESOURCE_EXHAUSTED
//	                                                                                 └─ no answer from Redis, and the outage mode refuses ─▶ UNAVAILABLE
//
// A stream is asked for once, when it begins, however many messages it has.
//
// A refusal has google.rpc.RetryInfo in its details, with the time to come back, and grpc-retry-pushback-ms in its trailer, by which a client that
// retries by a policy waits as long; where it is of no use to come back it has neither a time nor a retry. A refusal by a limit has google.rpc.QuotaFailure
// with the level as its subject. It names nobody and tells no error.
//
// An answer, passed or refused, tells of the tightest limit in the header metadata ratelimit and ratelimit-policy, as package httplimit does: by the level's
// name, a lower bound where tokens on lease have answered, and the global limit only where there is no Tenant.
package grpclimit
