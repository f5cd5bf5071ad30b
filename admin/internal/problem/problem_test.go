package problem_test

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/headgate/headgate/admin/internal/problem"
)

func TestProblemIsWrittenAsRFC9457Says(t *testing.T) {
	t.Parallel()
	p := problem.Invalid(problem.At("/cost", "0 is below 1"), problem.Fault{Parameter: "limit", Detail: "text"})
	p.RetryAfter = 1001 * time.Millisecond
	p.Extensions = map[string]any{"reason": "limited", "status": "a member of the problem's own wins"}
	p.Header = http.Header{"Allow": {"GET"}}
	w := httptest.NewRecorder()
	p.Write(w, "/api/v1/jobs", "r-1")
	if got := w.Result().Header; w.Code != http.StatusBadRequest || got.Get("Content-Type") != "application/problem+json" || got.Get("Retry-After") != "2" || got.Get("Allow") != "GET" {
		t.Errorf("%d %v", w.Code, got)
	}
	var got map[string]any
	if err := json.Unmarshal(w.Body.Bytes(), &got); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]any{
		"type": "urn:headgate:problem:invalid-request", "title": "The request is not valid", "status": 400.0,
		"instance": "/api/v1/jobs", "request_id": "r-1", "reason": "limited",
	} {
		if got[name] != want {
			t.Errorf("%s is %v, want %v", name, got[name], want)
		}
	}
	faults, _ := got["errors"].([]any)
	if len(faults) != 2 || faults[0].(map[string]any)["pointer"] != "/cost" || faults[1].(map[string]any)["parameter"] != "limit" {
		t.Errorf("%v", faults)
	}
}
