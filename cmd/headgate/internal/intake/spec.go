package intake

import (
	"errors"
	"maps"
	"strconv"
	"time"

	"github.com/headgate/headgate/admission"
)

// Spec is a job as it is written in flags or in a line.
type Spec struct {
	ID         string
	Tenant     string
	Queue      string
	Type       string
	Priority   string
	Downstream string
	Cost       int64
	// Deadline is a time from now, "5m", or one of RFC 3339; empty means none.
	Deadline string
	// Timeout is the longest time of a run, "30s"; empty means the worker's.
	Timeout string
	// Delay is how long after it entered it may start, "10m", and RunAt the earliest time, of RFC 3339; at most one of the two.
	Delay, RunAt string
	MaxAttempts  int
	Headers      map[string]string
	Payload      []byte
}

// Job returns the job. now is by the clock of Redis, which deadlines are compared with. All that needs no policy is
// checked, and every bad field reported.
func (s *Spec) Job(now time.Time) (admission.Job, error) {
	job := admission.Job{
		ID: s.ID, Tenant: s.Tenant, Queue: s.Queue, Type: s.Type, Priority: admission.Priority(s.Priority), Downstream: s.Downstream,
		Cost: admission.Tokens(s.Cost), MaxAttempts: s.MaxAttempts, Headers: maps.Clone(s.Headers), Payload: s.Payload,
	}
	var bad []error
	if s.Deadline != "" {
		deadline, ok := parseDeadline(s.Deadline, now)
		if !ok {
			bad = append(bad, &admission.FieldError{Field: "deadline", Value: quote(s.Deadline), Allowed: "a time from now, such as 5m, or one of RFC 3339"})
		}
		job.Deadline = deadline
	}
	if s.Timeout != "" {
		timeout, err := time.ParseDuration(s.Timeout)
		if err != nil {
			bad = append(bad, &admission.FieldError{Field: "timeout", Value: quote(s.Timeout), Allowed: "a time such as 30s"})
		}
		job.Timeout = timeout
	}
	if s.Delay != "" {
		delay, err := time.ParseDuration(s.Delay)
		if err != nil {
			bad = append(bad, &admission.FieldError{Field: "delay", Value: quote(s.Delay), Allowed: "a time such as 10m"})
		}
		job.Delay = delay
	}
	if s.RunAt != "" {
		at, err := time.Parse(time.RFC3339, s.RunAt)
		if err != nil {
			bad = append(bad, &admission.FieldError{Field: "run_at", Value: quote(s.RunAt), Allowed: "a time of RFC 3339, such as 2031-05-04T12:00:00Z"})
		}
		job.RunAt = at
	}
	bad = append(bad, job.Validate(admission.DefaultMaxPayload))
	return job, errors.Join(bad...)
}

func parseDeadline(text string, now time.Time) (time.Time, bool) {
	if from, err := time.ParseDuration(text); err == nil {
		return now.Add(from), true
	}
	at, err := time.Parse(time.RFC3339, text)
	return at, err == nil
}

// maxQuote bounds what is quoted of a bad value.
const maxQuote = 64

func quote(text string) string { return strconv.Quote(text[:min(len(text), maxQuote)]) }
