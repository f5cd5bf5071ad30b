package api

import (
	"maps"
	"math"
	"net/http"
	"regexp"

	"github.com/headgate/headgate/admission"
)

// The headers of W3C Trace Context, of calls and of jobs alike.
const (
	traceParent = "traceparent"
	traceState  = "tracestate"
)

var parentForm = regexp.MustCompile(`^[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}$`)

// addTrace lets the trace of a call go on in its job, unless the job names one of its own. Where a job may not have so
// many headers the trace is lost, not the job.
func addTrace(job *admission.Job, header http.Header) {
	parent := header.Get(traceParent)
	if _, own := job.Headers[traceParent]; own || !parentForm.MatchString(parent) {
		return
	}
	with := *job
	with.Headers = map[string]string{}
	maps.Copy(with.Headers, job.Headers)
	with.Headers[traceParent] = parent
	if state := header.Get(traceState); state != "" {
		with.Headers[traceState] = state
	}
	if with.Validate(math.MaxInt) == nil {
		job.Headers = with.Headers
	}
}
