package serve

import (
	"crypto/tls"
	"crypto/x509"
	"net/netip"
	"time"

	"go.opentelemetry.io/otel/trace"

	"github.com/headgate/headgate/admin"
	"github.com/headgate/headgate/admin/access"
	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/breaker"
	"github.com/headgate/headgate/cmd/headgate/internal/gateway"
	"github.com/headgate/headgate/limiter"
)

// Config is what a server is told. What it lacks and what contradicts itself is told by New.
type Config struct {
	Live

	// Address is host:port.
	Address string
	// NoAuth takes everybody for an admin. Only a loopback address may be so.
	NoAuth bool
	// ClientCAs are those one of which must have signed the certificate that a client shows; nil asks for none.
	ClientCAs *x509.CertPool
	// MinTLS is the oldest version of TLS that is spoken, as crypto/tls numbers it.
	MinTLS uint16
	// MaxBody, Timeout, OldHeaders and AdminLimit are those of admin.Config.
	MaxBody    int64
	Timeout    time.Duration
	OldHeaders bool
	AdminLimit admission.Limit
	// Bounds are those of admin.Config.
	Bounds admin.Bounds
	// Guard is that of admin.Config.
	Guard admin.GuardConfig
	// Limiter is how checks are decided by the server itself; nil asks Redis for each. With Exact that is so of the API's, and gateways alone
	// have a limiter.
	Limiter *limiter.Config
	// Authz and RLS answer gateways; they need a Limiter.
	Authz gateway.Authz
	RLS   gateway.RLS
	// Version names the build, in health and in headgate_build_info.
	Version string
	// Breaker and Breakers are those of admin.Config.
	Breaker  breaker.Config
	Breakers map[string]breaker.Config
	// Tracer makes the spans of jobs that are enqueued; nil makes none.
	Tracer trace.TracerProvider
}

// Live is what a server that runs can be told anew.
type Live struct {
	Credentials access.Credentials
	// Certificate makes it https; nil is http. It may be replaced, but not come or go.
	Certificate *tls.Certificate
	// Allow are the networks that may call; none means all.
	Allow []netip.Prefix
	// Mapping says what Envoy's descriptors are.
	Mapping gateway.Mapping
}
