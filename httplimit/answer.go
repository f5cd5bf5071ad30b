package httplimit

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/internal/limitheader"
	"github.com/headgate/headgate/limiter"
)

// Refusal is why a request does not pass. It is a plain value.
type Refusal struct {
	// Status is that of the answer: 429 where a limit refuses, 500 where the Config gives a name or a cost that is not allowed, else 503.
	Status int
	// Verdict is the limiter's; zero where there is none.
	Verdict limiter.Verdict
	// Err is why there is no verdict, else nil.
	Err error
	// RetryAfter is what the header of that name says, there rounded up to whole seconds; zero, and no header, where it is of no use to come back.
	RetryAfter time.Duration
}

// retrySoon is when to come back where nobody knows when it helps.
const retrySoon = time.Second

func refusalOf(verdict limiter.Verdict, err error) Refusal {
	refusal := Refusal{Status: http.StatusServiceUnavailable, Verdict: verdict, Err: err, RetryAfter: max(verdict.RetryAfter, retrySoon)}
	switch {
	case isInvalid(err):
		refusal.Status, refusal.RetryAfter = http.StatusInternalServerError, 0
	case err != nil:
	case verdict.Reason == admission.ReasonLimited:
		refusal.Status, refusal.RetryAfter = http.StatusTooManyRequests, max(verdict.RetryAfter, time.Nanosecond)
	case verdict.Reason == admission.ReasonTooCostly:
		refusal.Status, refusal.RetryAfter = http.StatusTooManyRequests, 0
	}
	return refusal
}

// problem is a problem details object of RFC 9457, with the members of the draft's types.
type problem struct {
	Type     string           `json:"type"`
	Title    string           `json:"title"`
	Status   int              `json:"status"`
	Detail   string           `json:"detail,omitempty"`
	Violated []string         `json:"violated-policies,omitempty"`
	Reason   admission.Reason `json:"reason,omitempty"`
}

// The types of problems that draft-ietf-httpapi-ratelimit-headers registers, with their titles.
const (
	quotaExceeded      = "https://iana.org/assignments/http-problem-types#quota-exceeded"
	quotaExceededTitle = "Request cannot be satisfied as assigned quota has been exceeded"
	reducedCapacity    = "https://iana.org/assignments/http-problem-types#temporary-reduced-capacity"
	reducedTitle       = "Request cannot be satisfied due to temporary server capacity constraints"
)

// Problem answers with application/problem+json (RFC 9457) of the draft's types: quota-exceeded for 429, with the level or the dimension that refuses in
// violated-policies, and temporary-reduced-capacity for 503. It names nobody and tells no error.
func Problem(w http.ResponseWriter, _ *http.Request, refusal Refusal) {
	p := problem{Type: "about:blank", Title: http.StatusText(refusal.Status), Status: refusal.Status, Reason: refusal.Verdict.Reason}
	switch refusal.Status {
	case http.StatusTooManyRequests:
		level := refusal.Verdict.Scope.Kind()
		p.Type, p.Title, p.Violated = quotaExceeded, quotaExceededTitle, []string{level}
		p.Detail = "the request costs more than the " + level + " limit ever holds"
		if refusal.RetryAfter > 0 {
			p.Detail = fmt.Sprintf("the %s limit has too little left; try again in %s s", level, limitheader.Delay(refusal.RetryAfter))
		}
	case http.StatusServiceUnavailable:
		p.Type, p.Title = reducedCapacity, reducedTitle
	}
	write(w, refusal.Status, "application/problem+json", p)
}

// throttled is the answer of ErrorObject to a 429, unavailable that to all else.
type (
	throttled struct {
		Status    int       `json:"status"`
		Error     string    `json:"error"`
		Message   string    `json:"message"`
		Timestamp time.Time `json:"timestamp"`
	}
	unavailable struct {
		Error      string           `json:"error"`
		Reason     admission.Reason `json:"reason,omitempty"`
		RetryAfter int64            `json:"retry_after_seconds,omitempty"`
	}
)

// ErrorObject is a Config.Answer for clients that know the older forms: for 429 status, error, message and timestamp; for 503 error,
// reason and retry_after_seconds, the reason also in X-Throttle-Reason.
func ErrorObject(w http.ResponseWriter, _ *http.Request, refusal Refusal) {
	if refusal.Status == http.StatusTooManyRequests {
		message := "Rate limit exceeded for key: " + refusal.Verdict.Scope.Kind()
		write(w, refusal.Status, "application/json", throttled{refusal.Status, http.StatusText(refusal.Status), message, time.Now().UTC()})
		return
	}
	reason := refusal.Verdict.Reason
	if reason != "" {
		w.Header().Set("X-Throttle-Reason", string(reason))
	}
	write(w, refusal.Status, "application/json", unavailable{http.StatusText(refusal.Status), reason, limitheader.Seconds(refusal.RetryAfter)})
}

// write answers with a JSON text. To HEAD the server sends its length alone; that is for it to say, as the request of Authz is another than the server's.
func write(w http.ResponseWriter, status int, contentType string, value any) {
	text, err := json.Marshal(value)
	if err != nil { // No value of ours has no text.
		text = nil
	}
	header := w.Header()
	header.Set("Content-Type", contentType)
	header.Set("Content-Length", strconv.Itoa(len(text)))
	w.WriteHeader(status)
	_, _ = w.Write(text) // Whoever went away hears nothing.
}

// onceWriter lets one status through, and knows whether one was written.
type onceWriter struct {
	http.ResponseWriter

	status int
	wrote  bool
}

func (o *onceWriter) WriteHeader(status int) {
	if !o.wrote {
		o.wrote = status >= http.StatusOK // What is below is not the answer yet.
		o.ResponseWriter.WriteHeader(status)
	}
}

func (o *onceWriter) Write(text []byte) (int, error) {
	o.WriteHeader(o.status)
	return o.ResponseWriter.Write(text)
}

// Unwrap is for http.ResponseController.
func (o *onceWriter) Unwrap() http.ResponseWriter { return o.ResponseWriter }
