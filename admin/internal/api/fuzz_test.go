package api

import (
	"bytes"
	"encoding/json"
	"errors"
	"net/http"
	"testing"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/admin/internal/openapi"
	"github.com/headgate/headgate/admin/internal/problem"
	"github.com/headgate/headgate/admin/internal/route"
	"github.com/headgate/headgate/policy"
)

// decoders are what handlers read the bodies of operations into.
var decoders = map[string]func() any{
	"POST /api/v1/jobs":                 func() any { return new(newJob) },
	"POST /api/v1/rate-limit/check":     func() any { return new(checkBody) },
	"POST /api/v1/dead-letters/redrive": func() any { return new(redrive) },
	"POST /api/v1/dead-letters/purge":   func() any { return new(letterChoice) },
	"POST /api/v1/queues/{queue}/purge": func() any { return new(purgeQueue) },
	"PUT /api/v1/queues/{queue}/pause":  func() any { return new(newHold) },
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
		`{"confirm":"mail"}`, `{"for":"10m","reason":"x"}`, `{"tenant":"\ud800","queue":"\u0000"}`, `{"cost":1e400}`,
	} {
		f.Add([]byte(seed))
	}
	snapshot, err := policy.Default().Prepare()
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		for pattern, fresh := range decoders {
			operation, _ := document.Operation(pattern)
			if faults := operation.CheckBody(body); len(faults) > 0 {
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
				if err == nil && json.Valid(body) && job.Validate(headgate.DefaultMaxPayload) == nil && v.Payload != nil && !bytes.Contains(body, v.Payload) {
					t.Errorf("%q: the payload became %q", body, v.Payload)
				}
				for _, err := range []error{headgate.ValidateTenant(job.Tenant), headgate.ValidateName("queue", job.Queue, true)} {
					if err != nil {
						t.Errorf("%q: %v", body, err)
					}
				}
			case *checkBody:
				for _, q := range append(v.Checks, v.question) {
					if q.Scope == "" {
						continue
					}
					if asked, err := questionOf(snapshot, q); err == nil && headgate.ScopeAt(q.Scope.Level(), asked.Tenant, asked.Queue, asked.Class).Level() != q.Scope.Level() {
						t.Errorf("%q became %+v", q.Scope, asked)
					}
				}
			}
		}
	})
}
