// Package deliver hands jobs to programs that know nothing of Go: by HTTP, one POST a job, or as the standard input of a
// command, one process a job. It exists so that a team brings its handlers in any language, and the worker around them
// stays the one of package worker.
//
// # What an answer means
//
//	HTTP                                    command            the job
//	2xx                                     exit 0             is done
//	429, 503 with Retry-After               exit 75 TEMPFAIL   snoozes, 1 s to 1 h or 10 s; no attempt burnt
//	4xx                                     exit 65 DATAERR    is discarded: a dead letter at once
//	408, 425, 429 without Retry-After,      any other exit,    failed: an attempt burnt, retried after a backoff
//	5xx, 3xx, no answer, time-out           signal, time-out
//
// 408 (Request Timeout), 425 (Too Early) and 429 say themselves that the same request may pass later, so a dead letter
// would be wrong. A 429 is no failure to the circuit breaker, and a dispatch that moves by itself goes by it (worker.Throttled); where the policy has a
// max_retry_after, its Retry-After holds the downstream back for the whole fleet. A redirect is a failure: what it points at was checked by nobody. The codes of commands are those of
// sysexits.h. A failure counts against the circuit breaker of the job's own downstream, as in any handler.
//
// Of what a command says, the end of its standard error goes to the dead letter and nothing to the log; its standard output goes
// nowhere, since it may hold what it was given. A command that has something to log logs it itself.
//
// An answer's header Headgate-Cost, or what a command writes to file descriptor 3, tells what the job has cost in truth, in whole tokens, 0 to
// 10,000,000 (worker.SetCost). One that is no such
// number is told to the log, and the job keeps what it had reserved: what was done is not to be done again for it.
//
// An answer's header X-Backpressure-Level, LOW, MEDIUM, HIGH or CRITICAL, asks for less, for as long as a Retry-After beside it says; a 2xx with
// Retry-After alone asks as HIGH does (worker.Pushback). It counts where the policy lets the dispatch of the job's downstream move.
//
// # Where an HTTP delivery may go
//
// To public addresses, unless it is told otherwise. The address is judged as the connection is made, after the name was
// resolved, so a name that resolves to another address a second later gets nowhere, and neither does a redirect or a
// proxy from the environment: there are none.
//
// # What a receiver sees
//
// The same facts reach an HTTP receiver as headers, Headgate-Id, Headgate-Max-Attempts, and a command as variables,
// HEADGATE_ID, HEADGATE_MAX_ATTEMPTS; the job's own headers as Headgate-Header-NAME and HEADGATE_HEADER_NAME. Requests
// are signed by the Standard Webhooks specification if there is a secret. The signature covers webhook-id,
// webhook-timestamp and the body, not the other headers; a CloudEvent has the facts in its body.
//
// A job may be delivered more than once: a worker that dies after the receiver has answered is one reason. webhook-id
// stays the same and tells.
//
// # Transitions of circuit breakers
//
// A Notifier posts those in the same way, always as CloudEvents, headgate.breaker.open, headgate.breaker.half-open and
// headgate.breaker.closed. A 2xx takes note of one; after anything else the scheduler tells it again. One may come twice,
// and after a later one: webhook-id and the event's period tell.
package deliver
