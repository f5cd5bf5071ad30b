package deliver

import (
	"bytes"
	"encoding/json"
	"fmt"
	"mime"
	"strings"
	"unicode/utf8"

	"github.com/headgate/headgate/worker"
)

// Media types of bodies.
const (
	typeJSON  = "application/json"
	typeBytes = "application/octet-stream"
	typeEvent = "application/cloudevents+json; charset=utf-8"
)

// event is a CloudEvent in structured mode: the JSON format of CloudEvents 1.0.2 (github.com/cloudevents/spec,
// json-format.md) in the body of its HTTP binding. A library would bring a logger and a second JSON codec along.
// Names of extensions may hold small letters and digits only, twenty of them.
type event struct {
	SpecVersion     string          `json:"specversion"`
	ID              string          `json:"id"`
	Source          string          `json:"source"`
	Type            string          `json:"type"`
	Time            string          `json:"time,omitempty"`
	DataContentType string          `json:"datacontenttype,omitempty"`
	Tenant          string          `json:"headgatetenant"`
	Queue           string          `json:"headgatequeue"`
	Priority        string          `json:"headgatepriority,omitempty"`
	Attempt         int             `json:"headgateattempt"`
	MaxAttempts     int             `json:"headgatemaxattempts"`
	Downstream      string          `json:"headgatedownstream,omitempty"`
	Deadline        string          `json:"headgatedeadline,omitempty"`
	TraceParent     string          `json:"traceparent,omitempty"` // of the extension Distributed Tracing, as is TraceState
	TraceState      string          `json:"tracestate,omitempty"`
	Data            json.RawMessage `json:"data,omitempty"`
	DataBase64      []byte          `json:"data_base64,omitempty"`
}

// encodeEvent returns a job as a CloudEvent. Source and id name it together: ids are the tenant's own.
func encodeEvent(job *worker.Job[[]byte]) ([]byte, error) {
	e := event{
		SpecVersion: "1.0", ID: job.ID, Source: "/headgate/" + job.Tenant, Type: job.Type, Time: instant(job.Admitted),
		Tenant: job.Tenant, Queue: job.Queue, Priority: string(job.Priority), Attempt: job.Attempt, MaxAttempts: job.MaxAttempts,
		Downstream: job.Downstream, Deadline: instant(job.Deadline),
		TraceParent: ownHeader(job, "traceparent"), TraceState: ownHeader(job, "tracestate"),
	}
	if len(job.Payload) > 0 {
		e.DataContentType = contentType(job)
		// A text of another encoding, which JSON takes in its strings, would make the event one that cannot be read.
		if isJSON(e.DataContentType) && json.Valid(job.Payload) && utf8.Valid(job.Payload) {
			e.Data = job.Payload
		} else {
			e.DataBase64 = job.Payload
		}
	}
	var body bytes.Buffer
	encoder := json.NewEncoder(&body)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(e); err != nil {
		return nil, fmt.Errorf("encode event: %w", err)
	}
	return body.Bytes(), nil
}

// contentType returns the media type of the payload: that of the job's own header content-type, else what it looks like.
func contentType(job *worker.Job[[]byte]) string {
	if own := ownHeader(job, "content-type"); own != "" {
		if media, parameters, err := mime.ParseMediaType(own); err == nil {
			return mime.FormatMediaType(media, parameters)
		}
	}
	if json.Valid(job.Payload) {
		return typeJSON
	}
	return typeBytes
}

func isJSON(contentType string) bool {
	media, _, _ := strings.Cut(contentType, ";")
	return media == typeJSON || strings.HasSuffix(media, "+json")
}

// ownHeader returns a header of the job, whatever the case of its name.
func ownHeader(job *worker.Job[[]byte], name string) string {
	for own, value := range job.Headers {
		if strings.EqualFold(own, name) {
			return value
		}
	}
	return ""
}
