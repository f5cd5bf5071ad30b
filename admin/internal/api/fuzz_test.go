package api

import (
	"bytes"
	"encoding/json"
	"errors"
	"net/http"
	"net/url"
	"testing"

	"github.com/headgate/headgate/admin/internal/openapi"
	"github.com/headgate/headgate/admin/internal/problem"
	"github.com/headgate/headgate/admin/internal/route"
	"github.com/headgate/headgate/admin/internal/sessions"
	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/policy"
)

// decoders are what handlers read the bodies of operations into. Those that are not here are a policy or a part of one, which
// package policy reads.
var decoders = map[string]func() any{
	"POST /api/v1/jobs":                 func() any { return new(newJob) },
	"POST /api/v1/rate-limit/check":     func() any { return new(checkBody) },
	"POST /api/v1/rate-limit/reserve":   func() any { return new(reserveBody) },
	"POST /api/v1/rate-limit/commit":    func() any { return new(settleBody) },
	"POST /api/v1/rate-limit/cancel":    func() any { return new(settleBody) },
	"POST /api/v1/dead-letters/redrive": func() any { return new(redrive) },
	"POST /api/v1/dead-letters/purge":   func() any { return new(letterChoice) },
	"POST /api/v1/queues/{queue}/purge": func() any { return new(purgeQueue) },
	"PUT /api/v1/queues/{queue}/pause":  func() any { return new(newHold) },

	"PUT /api/v1/queues/{queue}/suspension":                  func() any { return new(newHold) },
	"PUT /api/v1/tenants/{tenant}/pause":                     func() any { return new(newHold) },
	"PUT /api/v1/tenants/{tenant}/suspension":                func() any { return new(newHold) },
	"PUT /api/v1/tenants/{tenant}/queues/{queue}/pause":      func() any { return new(newHold) },
	"PUT /api/v1/tenants/{tenant}/queues/{queue}/suspension": func() any { return new(newHold) },
	"POST /api/v1/breakers/{downstream}/force":               func() any { return new(forceBreaker) },
	"POST /api/v1/breakers/{downstream}/reset":               func() any { return new(resetBreaker) },
	"POST /api/v1/policy/rollback":                           func() any { return new(rollbackBody) },
	"POST /api/v1/policy/rollout/share":                      func() any { return new(shareBody) },
	"POST /api/v1/workers":                                   func() any { return new(sessions.NewSession) },
	"POST /api/v1/workers/{worker}/leases":                   func() any { return new(sessions.NewLeases) },
	"POST /api/v1/workers/{worker}/complete":                 func() any { return new(sessions.Ending) },
	"POST /api/v1/workers/{worker}/fail":                     func() any { return new(sessions.Ending) },
	"POST /api/v1/workers/{worker}/release":                  func() any { return new(sessions.Ending) },
}

// FuzzBody: a body that the description takes is read into what handlers work with, or refused with the place of what is
// wrong; every name that then goes into a key is a valid one.
func FuzzBody(f *testing.F) {
	document, err := openapi.Load()
	if err != nil {
		f.Fatal(err)
	}
	for _, seed := range []string{
		``, `{}`, `[]`, `null`, `{"a":1,"a":2}`, `{"tenant":"acme","queue":"mail","type":"t","cost":1.0,"payload":{"x":[1,2,{}]},"delay":"1h30m"}`,
		`{"tenant":"acme","queue":"mail","type":"t","run_at":"2030-01-01T00:00:60Z","unique":{"key":"k","for":"1s","release":"end"},"payload_base64":"AA=="}`,
		`{"scope":"acme:mail:high","tokens":3,"peek":true}`, `{"checks":[{"scope":"global"},{"scope":"a","tokens":2}]}`,
		`{"keys":[{"tenant":"acme","id":"x"}],"without_limits":true}`, `{"filter":{"queue":"mail","before":"2030-01-01T00:00:00Z"},"cursor":"x"}`,
		`{"queues":[{"name":"mail","weight":3}],"slots":4,"lease":"30s"}`, `{"max":10,"wait":"1s","held":true}`, `{"token":"1-1","tenant":"a","id":"b","error":"x"}`,
		`{"version":3,"reason":"x"}`, `{"share":0.5}`, `{"state":"open","for":"1m","reason":"x"}`, `{"confirm":"mail"}`, `{"for":"10m","reason":"x"}`, `{"tenant":"\ud800","queue":"\u0000"}`, `{"cost":1e400}`,
	} {
		f.Add([]byte(seed))
	}
	snapshot, err := policy.Default().Prepare()
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		for _, pattern := range document.Patterns() {
			operation, _ := document.Operation(pattern)
			fresh := decoders[pattern]
			if !operation.TakesBody() || len(operation.CheckBody(body)) > 0 || fresh == nil {
				continue
			}
			into := fresh()
			r := &route.Request{Request: &http.Request{Header: http.Header{}}, Body: body}
			if err := r.Decode(into); err != nil {
				if p, ok := errors.AsType[*problem.DetailsError](err); !ok || len(p.Faults) == 0 {
					t.Errorf("%s: %q: %v", pattern, body, err)
				}
				continue
			}
			switch v := into.(type) {
			case *newJob:
				job, err := v.job(r.Header)
				if err == nil && json.Valid(body) && job.Validate(admission.DefaultMaxPayload) == nil && v.Payload != nil && !bytes.Contains(body, v.Payload) {
					t.Errorf("%q: the payload became %q", body, v.Payload)
				}
				for _, err := range []error{admission.ValidateTenant(job.Tenant), admission.ValidateName("queue", job.Queue, true)} {
					if err != nil {
						t.Errorf("%q: %v", body, err)
					}
				}
			case *checkBody:
				for _, q := range append(v.Checks, v.question) {
					if q.Scope == "" {
						continue
					}
					if asked, err := questionOf(snapshot, q); err == nil && admission.ScopeAt(q.Scope.Level(), asked.Tenant, asked.Queue, asked.Class).Level() != q.Scope.Level() {
						t.Errorf("%q became %+v", q.Scope, asked)
					}
				}
			}
		}
	})
}

// FuzzQuery: query parameters that are taken are known and given once, whatever their text.
func FuzzQuery(f *testing.F) {
	document, err := openapi.Load()
	if err != nil {
		f.Fatal(err)
	}
	for _, seed := range []string{"", "limit=10&cursor=x", "limit=1&limit=2", "limit=1e3", "state=dead&tenant=%00", "x", "limit=-1&=&%zz", "since=2030-01-01T00:00:60Z"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		query, err := url.ParseQuery(text)
		if err != nil {
			return
		}
		for _, pattern := range document.Patterns() {
			operation, _ := document.Operation(pattern)
			faults := operation.CheckQuery(query)
			for _, fault := range faults {
				if !query.Has(fault.Parameter) || fault.Detail == "" {
					t.Errorf("%s: %q: %+v", pattern, text, fault)
				}
			}
			for name, values := range query {
				if len(faults) == 0 && len(values) != 1 {
					t.Errorf("%s: %q: %s is taken %d times", pattern, text, name, len(values))
				}
			}
		}
	})
}
