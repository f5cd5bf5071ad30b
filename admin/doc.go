// Package admin is the HTTP API by which a deployment is operated, and which programs of any language use to enqueue
// jobs and to ask for tokens. Its description is OpenAPI 3.1, served at /api/v1/openapi.json; docs/API.md tells what it
// takes from which paper.
//
// The way of a call, from the outside in; whatever refuses it answers with a problem (RFC 9457) that has its id:
//
//	request id ─▶ log ─▶ panic to 500 ─▶ security headers ─▶ allow list of addresses
//	  ─▶ route ─▶ credential ─▶ rate limit ─▶ role and reach ─▶ path, query and body by the description ─▶ handler
//
// A route without a role or a reach does not start (package route), nor does one that the description does not have, or
// describes otherwise. A principal that is bound to a tenant is answered 404 for any other, before anything is looked
// up, so that neither answer nor time tells whether it exists; and 403 for what is the deployment's.
package admin
