package spans

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"time"

	otlp "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"
)

// client posts spans to a collector, as OTLP over HTTP says. OpenTelemetry's own client, otlptracehttp, links gRPC, which makes
// the binary half as large again.
type client struct {
	url     string
	headers map[string]string
	http    *http.Client
}

// Start does nothing: connections are opened by the first request.
func (c *client) Start(context.Context) error { return nil }

// Stop does nothing either: the process ends, and with it its connections.
func (c *client) Stop(context.Context) error { return nil }

// UploadTraces sends spans until the collector takes them, says that it never will, or exportTimeout is over.
func (c *client) UploadTraces(ctx context.Context, spans []*otlp.ResourceSpans) error {
	// It is on the wire what ExportTraceServiceRequest is, whose package brings gRPC along.
	body, err := proto.Marshal(&otlp.TracesData{ResourceSpans: spans})
	if err != nil {
		return fmt.Errorf("write spans: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, exportTimeout)
	defer cancel()
	for {
		again, err := c.post(ctx, body)
		if err == nil || again < 0 {
			return err
		}
		pause := time.NewTimer(again)
		select {
		case <-pause.C:
		case <-ctx.Done():
			pause.Stop()
			return err
		}
	}
}

// post sends a body once. With an error it says after how long to try again, below 0 for never.
func (c *client) post(ctx context.Context, body []byte) (again time.Duration, err error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, c.url, bytes.NewReader(body))
	if err != nil {
		return -1, err
	}
	request.Header.Set("Content-Type", "application/x-protobuf")
	for name, value := range c.headers {
		request.Header.Set(name, value)
	}
	response, err := c.http.Do(request)
	if err != nil {
		return retryAfter, err
	}
	defer func() { _ = response.Body.Close() }()
	const enough = 64 << 10 // To use the connection again; what the collector says is of no use.
	_, _ = io.CopyN(io.Discard, response.Body, enough)
	switch response.StatusCode {
	case http.StatusTooManyRequests, http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		again = retryAfter
		if s, err := strconv.Atoi(response.Header.Get("Retry-After")); err == nil && s >= 0 {
			again = time.Duration(min(s, int(exportTimeout.Seconds()))) * time.Second
		}
	default:
		if response.StatusCode/100 == 2 {
			return 0, nil
		}
		again = -1
	}
	return again, fmt.Errorf("the collector answered %s", response.Status)
}
