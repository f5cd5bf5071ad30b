package deliver

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/worker"
)

// judge turns an HTTP answer into that of a handler; the package comment has the table.
func judge(response *http.Response, said []byte, now time.Time) error {
	status := response.StatusCode
	failure := &FailureError{brief: "answered " + statusText(status), said: textOf(said[:min(len(said), maxQuote)])}
	switch {
	case status >= 200 && status < 300:
		return nil
	case status >= 300 && status < 400:
		failure.brief += ", and redirects are not followed"
		return failure
	case status == http.StatusTooManyRequests || status == http.StatusServiceUnavailable:
		if delay, ok := retryAfter(response.Header.Get("Retry-After"), now); ok {
			return worker.Snooze(delay)
		}
		return failure
	case status == http.StatusRequestTimeout || status == http.StatusTooEarly:
		return failure
	case status >= 400 && status < 500:
		return worker.Discard(failure)
	}
	return failure
}

// headerCost is the header of an answer that tells what the job has cost in truth, in tokens.
const headerCost = "Headgate-Cost"

// setCost tells a job's cost, where the answer has one. One that is none is an error, and nothing is told.
func setCost(ctx context.Context, values []string) error {
	if len(values) == 0 {
		return nil
	}
	cost, err := strconv.ParseInt(values[0], 10, 64)
	if err != nil || len(values) > 1 {
		text := strings.Join(values, ", ")
		return &admission.FieldError{Field: headerCost, Value: strconv.Quote(text[:min(len(text), 64)]), Allowed: fmt.Sprintf("one whole number, 0 to %d tokens", admission.MaxActualCost)}
	}
	return worker.SetCost(ctx, admission.Tokens(cost))
}

func statusText(status int) string {
	if text := http.StatusText(status); text != "" {
		return strconv.Itoa(status) + " " + text
	}
	return strconv.Itoa(status)
}

// Bounds of a snooze that a receiver asks for: no busy loop, and no job that is gone for a day by a slip of units.
const (
	minSnooze = time.Second
	maxSnooze = time.Hour
)

// retryAfter reads a Retry-After in either form of RFC 9110, section 10.2.3: seconds, or a date. ok is false for none
// and for what is neither.
func retryAfter(value string, now time.Time) (delay time.Duration, ok bool) {
	seconds, err := strconv.ParseUint(value, 10, 32)
	switch {
	case err == nil:
		delay = time.Duration(seconds) * time.Second
	case errors.Is(err, strconv.ErrRange):
		delay = maxSnooze
	default:
		date, err := http.ParseTime(value)
		if err != nil {
			return 0, false
		}
		delay = date.Sub(now)
	}
	return min(max(delay, minSnooze), maxSnooze), true
}
