package deliver

import (
	"context"
	"errors"
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
	case status == http.StatusTooManyRequests:
		if delay, ok := retryAfter(response.Header.Get("Retry-After"), now); ok {
			return worker.Throttled(worker.Snooze(delay))
		}
		return worker.Throttled(failure)
	case status == http.StatusServiceUnavailable:
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

// headerPressure is how much less a receiver asks for, as headgate serve tells its own callers.
const headerPressure = "X-Backpressure-Level"

// tellPushback tells whether the receiver asks for less.
func tellPushback(ctx context.Context, response *http.Response, now time.Time) error {
	level, d, err := pushbackOf(response, now)
	if err != nil || level == admission.PressureNone {
		return err
	}
	return worker.Pushback(ctx, level, d)
}

// pushbackOf is how much less a receiver asks for: by a level, for as long as a Retry-After beside it says. A success with Retry-After alone
// asks for HIGH: it is done, and the next is not to come at once.
func pushbackOf(response *http.Response, now time.Time) (level admission.PressureLevel, d time.Duration, err error) {
	said := response.Header.Get(headerPressure)
	delay, later := retryAfter(response.Header.Get("Retry-After"), now)
	level = admission.PressureNone
	switch {
	case said != "":
		var ok bool
		if level, ok = admission.ParsePressureLevel(strings.ToUpper(said)); !ok {
			return admission.PressureNone, 0, &admission.FieldError{Field: headerPressure, Value: strconv.Quote(textOf([]byte(said[:min(len(said), maxQuote)]))), Allowed: "NONE, LOW, MEDIUM, HIGH or CRITICAL"}
		}
	case later && response.StatusCode >= 200 && response.StatusCode < 300:
		level = admission.PressureHigh
	}
	return level, min(delay, worker.MaxPushback), nil
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
