// Package limitheader writes what a limit is, and what is left of it, into the headers of an HTTP answer, for package admin and for
// package httplimit: the fields RateLimit-Policy and RateLimit of draft-ietf-httpapi-ratelimit-headers-11 (May 2026), and the X-RateLimit
// fields that were usual before.
//
// A token bucket of rate ρ and burst B that holds L tokens is told as
//
//	RateLimit-Policy: "name";q=ρ·w;w=w;headgate-burst=B
//	RateLimit:        "name";r=⌊L⌋;t=t
//
// with the least of some windows w in which ρ·w is whole. The draft's t is the effective window, "the number of seconds within which the
// client can use no more than the available quota", not the time until the bucket is full: here t = L/ρ, so that a client that spreads
// r over t sends at the rate, which the draft asks for where it bounds the ratio of the two; and where no token is left, the time until
// there is one. The draft has Retry-After end no earlier than t, so an answer with a Retry-After has no longer t than that.
//
// Of a limit of fixed windows that have N tokens each it is q=N and the length of a window, and t is the time until the next one begins; of sliding
// ones t is no longer than all that was taken takes to come back.
//
// A later, unpublished text of the draft's repository calls r and t "a" and "w"; this follows what is published.
package limitheader
