package deliver

import (
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/headgate/headgate/worker"
)

// fact is one thing that a receiver is told about a job. Its name is in small letters with hyphens.
type fact struct{ name, value string }

// factsOf returns what a job is, without its payload and its own headers. What the job does not have is left out.
func factsOf(job *worker.Job[[]byte]) []fact {
	suspect := ""
	if job.Suspect {
		suspect = "true"
	}
	facts := []fact{
		{"id", job.ID},
		{"tenant", job.Tenant},
		{"queue", job.Queue},
		{"type", job.Type},
		{"priority", string(job.Priority)},
		{"attempt", strconv.Itoa(job.Attempt)},
		{"max-attempts", strconv.Itoa(job.MaxAttempts)},
		{"lost", strconv.Itoa(job.Lost)},
		{"suspect", suspect},
		{"cost", strconv.FormatInt(int64(job.Cost), 10)},
		{"downstream", job.Downstream},
		{"admitted", instant(job.Admitted)},
		{"deadline", instant(job.Deadline)},
	}
	return slices.DeleteFunc(facts, func(f fact) bool { return f.value == "" })
}

// instant writes a time by RFC 3339 in UTC; nothing for none.
func instant(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format(time.RFC3339Nano)
}

// The prefixes of names: of facts, and of the job's own headers.
const (
	headerPrefix      = "Headgate-"
	ownHeaderPrefix   = "Headgate-Header-"
	variablePrefix    = "HEADGATE_"
	ownVariablePrefix = "HEADGATE_HEADER_"
)

// traceHeaders are of W3C Trace Context: a receiver that traces goes on with its job's trace.
var traceHeaders = [...]string{"traceparent", "tracestate"}

// addHeaders writes facts and the job's own headers as HTTP headers, those of a trace under their own names too. HTTP
// takes neither all names nor all values that a job's headers may have, so bytes that it does not take are
// percent-encoded.
func addHeaders(header http.Header, job *worker.Job[[]byte]) {
	for _, f := range factsOf(job) {
		header.Set(headerPrefix+f.name, f.value)
	}
	for _, name := range slices.Sorted(maps.Keys(job.Headers)) {
		header.Add(ownHeaderPrefix+percent(name, tokenByte), percent(job.Headers[name], valueByte))
	}
	for _, name := range traceHeaders {
		if value := job.Headers[name]; value != "" && percent(value, valueByte) == value {
			header.Set(name, value)
		}
	}
}

// percent encodes the bytes that plain does not let through.
func percent(s string, plain func(byte) bool) string {
	var text strings.Builder
	for i := range len(s) {
		if plain(s[i]) {
			text.WriteByte(s[i])
		} else {
			fmt.Fprintf(&text, "%%%02X", s[i])
		}
	}
	return text.String()
}

// tokenByte reports whether a byte of a job's header name may stand in that of HTTP. Of the bytes that
// headgate.ValidateName allows those are all but ':', '@' and '/' (RFC 9110, section 5.6.2).
func tokenByte(b byte) bool { return b != ':' && b != '@' && b != '/' }

// valueByte follows the HTTP binding of CloudEvents 1.0, section 3.1.3.2: printable ASCII but space, '"' and '%'.
func valueByte(b byte) bool { return b > ' ' && b < 0x7f && b != '"' && b != '%' }

// variables returns facts and the job's own headers as environment variables, "NAME=value". In names of headers, letters
// become capitals and all that is neither a letter nor a digit '_'. A value with a NUL cannot be passed and is left out.
func variables(job *worker.Job[[]byte]) []string {
	var all []string
	for _, f := range factsOf(job) {
		all = append(all, variablePrefix+variableName(f.name)+"="+f.value)
	}
	for _, name := range slices.Sorted(maps.Keys(job.Headers)) {
		if value := job.Headers[name]; !strings.Contains(value, "\x00") {
			all = append(all, ownVariablePrefix+variableName(name)+"="+value)
		}
	}
	return all
}

func variableName(name string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z':
			return r - 'a' + 'A'
		case r >= 'A' && r <= 'Z', r >= '0' && r <= '9':
			return r
		}
		return '_'
	}, name)
}
