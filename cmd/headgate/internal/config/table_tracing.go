package config

import (
	"errors"
	"fmt"
	"net/url"
	"strings"

	"golang.org/x/net/http/httpguts"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/cmd/headgate/internal/spans"
)

// The paths of tracing that code names.
const (
	pathTraces       = "tracing.endpoint"
	pathTraceHeaders = "tracing.headers"
)

func tracingOptions() []Option {
	at := func(c *Config) *Tracing { return &c.Tracing }
	return []Option{
		{
			Path: pathTraces, Unset: "no traces are made", mask: maskTarget,
			Doc:   "Collector that gets the traces of `enqueue`, `serve` and `worker`, by OTLP over HTTP; without a path at `/v1/traces`.",
			value: text("https://host:port, or http:// with `tracing.insecure`", isTarget, func(c *Config) *string { return &at(c).Endpoint }),
		},
		{
			Path: pathTraceHeaders, Unset: "none", secret: true, Doc: "Headers that go with each request, NAME: VALUE, one a line.",
			value: text("NAME: VALUE, one a line", nil, func(c *Config) *string { return &at(c).Headers }),
		},
		{
			Path: pathTraceHeaders + fileSuffix, Unset: "none", Doc: "File of these headers. Of headers and a file those from the stronger source count.",
			value: text("the name of a file", nil, func(c *Config) *string { return &at(c).HeadersFile }),
		},
		{
			Path: "tracing.insecure", Default: "false", Doc: "Let traces and headers cross the network in the clear, by http.",
			value: boolean(func(c *Config) *bool { return &at(c).Insecure }),
		},
		{
			Path: "tracing.sample_ratio", Default: "1", Doc: "Part of the traces that begin here and are sent. What a caller has begun follows its caller.",
			value: ratio(func(c *Config) *float64 { return &at(c).SampleRatio }),
		},
		{
			Path: "tracing.service", Default: "headgate", Doc: "`service.name` of the process.",
			value: text("1-64 bytes of [A-Za-z0-9._@/:-]", func(s string) bool {
				return admission.ValidateName("service", s, false) == nil
			}, func(c *Config) *string { return &at(c).Service }),
		},
	}
}

func isTarget(text string) bool {
	target, err := url.Parse(text)
	return err == nil && target.Host != "" && (target.Scheme == "https" || target.Scheme == "http")
}

// Traces returns where traces go; it reads the file of the headers.
func (l *Loaded) Traces() (spans.Config, error) {
	c := &l.Config.Tracing
	config := spans.Config{Endpoint: c.Endpoint, SampleRatio: c.SampleRatio, Service: c.Service, Headers: map[string]string{}}
	lines, _, err := l.secretOf(pathTraceHeaders, c.Headers, c.HeadersFile)
	bad := []error{err}
	number := 0
	for line := range strings.Lines(lines) {
		number++
		if line = strings.TrimSpace(line); line == "" {
			continue
		}
		name, value, ok := strings.Cut(line, ":")
		value = strings.TrimSpace(value)
		if !ok || !httpguts.ValidHeaderFieldName(name) || !httpguts.ValidHeaderFieldValue(value) {
			bad = append(bad, &admission.FieldError{Field: fmt.Sprintf("%s in line %d", l.Field(pathTraceHeaders), number), Value: "(not shown)", Allowed: "NAME: VALUE"})
			continue
		}
		config.Headers[name] = value
	}
	return config, errors.Join(bad...)
}
