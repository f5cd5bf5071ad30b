package spans

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/rs/zerolog"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace"
	"go.opentelemetry.io/otel/sdk/resource"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
)

// Config says where spans go. The zero value sends none.
type Config struct {
	// Endpoint is the URL of a collector, https or http; without a path it is that of the standard, /v1/traces.
	Endpoint string
	// Headers go with each request.
	Headers map[string]string
	// SampleRatio is the part of the traces that begin here and are sent, above 0, at most 1. Others follow their parent.
	SampleRatio float64
	// Service names the process among others.
	Service string
}

const (
	standardPath = "/v1/traces"
	// exportTimeout bounds the sending of a batch, closeTimeout that of what is left at the end. A collector that is busy is
	// asked again after retryAfter, or when it says.
	exportTimeout = 5 * time.Second
	closeTimeout  = 3 * time.Second
	retryAfter    = time.Second
)

// Exporter sends spans in the background, in batches; what a collector does not take in time is dropped, and told to the log.
// It may be used by several goroutines.
type Exporter struct {
	provider *sdk.TracerProvider // nil for none
	logger   zerolog.Logger
}

// Open returns an Exporter, which calls nobody yet.
func Open(config Config, logger zerolog.Logger) (*Exporter, error) {
	e := &Exporter{logger: logger}
	if config.Endpoint == "" {
		return e, nil
	}
	target, err := url.Parse(config.Endpoint)
	if err != nil {
		return nil, errors.New("read the endpoint of traces: it is no URL")
	}
	if strings.Trim(target.Path, "/") == "" {
		target.Path = standardPath
	}
	to := &client{url: target.String(), headers: config.Headers, http: &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error {
		return http.ErrUseLastResponse // The headers are for this collector.
	}}}
	about, err := resource.Merge(resource.Default(), resource.NewSchemaless(attribute.String("service.name", config.Service)))
	if err != nil {
		return nil, fmt.Errorf("open the exporter of traces: %w", err)
	}
	otel.SetErrorHandler(otel.ErrorHandlerFunc(e.failed))
	e.provider = sdk.NewTracerProvider(sdk.WithBatcher(otlptrace.NewUnstarted(to)), sdk.WithResource(about), sdk.WithSampler(sdk.ParentBased(sdk.TraceIDRatioBased(config.SampleRatio))))
	return e, nil
}

// Provider makes the spans; nil where there are none.
func (e *Exporter) Provider() trace.TracerProvider {
	if e.provider == nil {
		return nil
	}
	return e.provider
}

// Close sends what is left, for 3 s at most and also when ctx is done.
func (e *Exporter) Close(ctx context.Context) {
	if e.provider == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeTimeout)
	defer cancel()
	if err := e.provider.Shutdown(ctx); err != nil {
		e.failed(err)
	}
}

func (e *Exporter) failed(err error) {
	e.logger.Warn().Err(hidden(err)).Msg("traces are lost")
}

// hidden leaves the URL out of an error: there may be a token in its path.
func hidden(err error) error {
	if failed, ok := errors.AsType[*url.Error](err); ok {
		return failed.Err
	}
	return err
}
