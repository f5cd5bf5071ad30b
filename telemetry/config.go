package telemetry

import (
	"cmp"
	"strconv"

	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"github.com/headgate/headgate/admission"
)

// Config says what is shown, and where. The zero value shows nothing.
type Config struct {
	// Tracer makes the spans; nil means no traces, and no headers of them.
	Tracer trace.TracerProvider
	// Propagator writes and reads the headers; nil means W3C Trace Context.
	Propagator propagation.TextMapPropagator
	// Registerer gets the metrics; nil means none.
	Registerer prometheus.Registerer
	// Tenants is how many tenants have a label of their own in headgate_tenant_requests_total, 1 to 1000; zero means 20.
	Tenants int
}

const (
	defaultTenants = 20
	maxTenants     = 1000
)

func (c Config) withDefaults() Config {
	c.Tenants = cmp.Or(c.Tenants, defaultTenants)
	if c.Propagator == nil {
		c.Propagator = propagation.TraceContext{}
	}
	return c
}

func (c Config) validate() error {
	if c.Tenants < 1 || c.Tenants > maxTenants {
		return &admission.FieldError{Field: "Tenants", Value: strconv.Itoa(c.Tenants), Allowed: "1 to 1000"}
	}
	return nil
}
