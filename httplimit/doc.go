// Package httplimit puts a limiter in front of HTTP handlers: a Middleware is middleware of the usual shape, func(http.Handler) http.Handler,
// for net/http, chi and whatever takes that.
//
//	request ─▶ Skip? ─▶ who (Tenant), where (Queue, Class), how much (Cost) ─▶ limiter ─┬─ admitted ─▶ the handler
//	                                                                                    ├─ a limit refuses ─▶ 429
//	                                                                                    └─ no answer from Redis, and the outage mode refuses ─▶ 503
//
// Keys. Who asks is a tenant of the policy: by its own name (FromUser), by the hash of its API key (FromHeader), or by its address (FromIP).
// One that the policy does not name has the limits of the standard tier. One that has no key at all shares the tenant Anonymous with all
// others like it: to leave a key out lets nobody through. Where a request goes may be the queue (FromRoute): a route's pattern, never its
// path, of which clients make as many as they like.
//
// A key is believed as it is found. Whoever may choose an API key freely has a bucket for each, so that FromHeader belongs behind what
// checks the key, or behind a second Middleware by address. They nest: what the outer one has charged stays charged when the inner one
// refuses, and the answer tells the limit of the inner one.
//
// An answer, passed or refused, tells of the tightest limit in RateLimit and RateLimit-Policy (draft-ietf-httpapi-ratelimit-headers-11),
// by the level's name: tenant, queue or priority. The global limit is told only where there is no Tenant: what everybody takes together
// is not a client's to know. Most checks are answered by tokens on lease, and what is told then is what this process holds: the bucket may
// hold more. Nothing is told of what was answered without Redis.
package httplimit
