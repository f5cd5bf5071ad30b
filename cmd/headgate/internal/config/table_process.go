package config

// What a process is told beside its work: how much of its machine it may use, and where its traces go.

import (
	"errors"
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"time"

	"golang.org/x/net/http/httpguts"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/cmd/headgate/internal/spans"
	"github.com/headgate/headgate/internal/guard"
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
	lines, err := l.secretOf(pathTraceHeaders, c.Headers, c.HeadersFile)
	bad := []error{err}
	number := 0
	for line := range strings.Lines(lines.Text) {
		number++
		if line = strings.TrimSpace(line); line == "" {
			continue
		}
		name, value, ok := strings.Cut(line, ":")
		value = strings.TrimSpace(value)
		if !ok || !httpguts.ValidHeaderFieldName(name) || !httpguts.ValidHeaderFieldValue(value) {
			bad = append(bad, &admission.FieldError{Field: fmt.Sprintf("%s in line %d", lines.Name, number), Value: "(not shown)", Allowed: "NAME: VALUE"})
			continue
		}
		config.Headers[name] = value
	}
	return config, errors.Join(bad...)
}

func guardOptions() []Option {
	at := func(c *Config) *Guard { return &c.Guard }
	return []Option{
		{
			Path: "guard.max_memory", Default: "0", Doc: "Resident memory in bytes, of the process and of those that it started, from which on `worker` takes no further jobs and `serve` no further calls. What runs goes on. Zero is no limit, here and below.",
			value: count(0, guard.MaxMemory, func(c *Config) *int { return &at(c).Memory }),
		},
		{
			Path: pathCgroupMemory, Default: "0", Doc: "The same, as a part of the memory that the cgroup may have, for all that is in it. Where the cgroup has no limit it is an error.",
			value: between(0, 1, func(c *Config) *float64 { return &at(c).CgroupMemory }),
		},
		{
			Path: "guard.max_cpu", Default: "0", Doc: "Processors' time a second, of the process and of those that it started: 2 is two cores.",
			value: between(0, guard.MaxCPU, func(c *Config) *float64 { return &at(c).CPU }),
		},
		{
			Path: pathCgroupCPU, Default: "0", Doc: "The same, as a part of the quota of the cgroup. Where it has none it is an error.",
			value: between(0, 1, func(c *Config) *float64 { return &at(c).CgroupCPU }),
		},
		{
			Path: "guard.max_goroutines", Default: "0", Doc: "Goroutines of the process.",
			value: count(0, guard.MaxGoroutines, func(c *Config) *int { return &at(c).Goroutines }),
		},
		{
			Path: "guard.max_sched_latency", Default: "0s", Doc: "How long all but one in a hundred goroutines may have waited for a processor since the last look: a few milliseconds are much.",
			value: duration(0, guard.MaxSchedLatency, func(c *Config) *time.Duration { return &at(c).SchedLatency }),
		},
		{
			Path: "guard.max_requests_per_minute", Default: "0", Doc: "Jobs that a worker starts, or calls that a server answers, in any 60 s. Concurrency and connections have bounds of their own: `worker.concurrency`, `serve.max_calls`, `serve.max_connections`.",
			value: count(0, guard.MaxRequests, func(c *Config) *int { return &at(c).RequestsPerMinute }),
		},
		{
			Path: "guard.interval", Default: guard.DefaultInterval.String(), Doc: "Time between two looks.",
			value: duration(guard.MinInterval, guard.MaxInterval, func(c *Config) *time.Duration { return &at(c).Interval }),
		},
		{
			Path: "guard.warn_at", Default: strconv.FormatFloat(guard.DefaultWarnAt, 'g', -1, 64), Doc: "Part of a limit from which on it is logged.",
			value: between(guard.MinWarnAt, 1, func(c *Config) *float64 { return &at(c).WarnAt }),
		},
		{
			Path: "guard.delays.warn", Default: "0s", Doc: "What new work waits for from `guard.warn_at` of a limit on: a `worker` before it reads, `serve` before it begins a call. This and the next two are up to a tenth more or less, at random.",
			value: duration(0, guard.MaxDelay, func(c *Config) *time.Duration { return &at(c).Delays.Warn }),
		},
		{
			Path: "guard.delays.connections", Default: guard.DefaultConnectionsDelay.String(), Doc: "For how long `serve` leaves the next connection in the backlog while `serve.max_connections` are open, with a limit below `guard` or without.",
			value: duration(guard.MinDelay, guard.MaxDelay, func(c *Config) *time.Duration { return &at(c).Delays.Connections }),
		},
		{
			Path: "guard.delays.violation", Default: guard.DefaultViolationDelay.String(), Doc: "After how long it is looked again, instead of `guard.interval`, while a limit keeps new work away; `Retry-After` of `serve` says it, without the random tenth.",
			value: duration(guard.MinDelay, guard.MaxDelay, func(c *Config) *time.Duration { return &at(c).Delays.Violation }),
		},
	}
}

// GuardHere reports what is limited and cannot be measured where this process runs: that is known there alone, not from the configuration.
func (l *Loaded) GuardHere() error {
	_, err := guard.New(l.Guard(), guard.Parts{})
	return naming(err, "guard", map[string]string{"MaxCgroupMemory": l.Field(pathCgroupMemory), "MaxCgroupCPU": l.Field(pathCgroupCPU)})
}

// Guard returns what the process may use.
func (l *Loaded) Guard() guard.Config {
	c := &l.Config.Guard
	return guard.Config{
		MaxMemory: int64(c.Memory), MaxCgroupMemory: c.CgroupMemory, MaxCPU: c.CPU, MaxCgroupCPU: c.CgroupCPU, MaxGoroutines: c.Goroutines,
		MaxSchedLatency: c.SchedLatency, MaxRequestsPerMinute: c.RequestsPerMinute, Interval: c.Interval, WarnAt: c.WarnAt, Delays: c.Delays,
	}
}
