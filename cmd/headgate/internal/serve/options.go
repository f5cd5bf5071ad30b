package serve

import (
	"errors"

	"github.com/headgate/headgate/admin"
	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/cmd/headgate/internal/config"
	"github.com/headgate/headgate/cmd/headgate/internal/gateway"
	"github.com/headgate/headgate/limiter"
)

// ConfigOf returns what a server is told by a configuration; it reads the files of keys and certificates.
func ConfigOf(l *config.Loaded) (Config, error) {
	c := &l.Config.Serve
	own := Config{
		Address: c.Address, NoAuth: c.Credentials.NoAuth, MaxBody: int64(c.MaxBody), Timeout: c.Timeout, OldHeaders: c.OldHeaders,
		AdminLimit: admission.PerSecond(admission.Tokens(c.Rate)).WithBurst(admission.Tokens(c.Burst)),
	}
	own.Allow = c.Allow
	own.Bounds = admin.Bounds{
		MaxConnections: c.Bounds.Connections, MaxConnectionsPerAddress: c.Bounds.PerAddress, MaxCalls: c.Bounds.Calls, MaxBytes: int64(c.Bounds.Bytes),
		TenantLimit: admission.PerSecond(admission.Tokens(c.Bounds.TenantRate)).WithBurst(admission.Tokens(max(c.Bounds.TenantRate/4, leastBurst))), TenantBytes: int64(c.Bounds.TenantBytes),
	}
	own.Guard = l.Guard()
	own.Limiter = limiterOf(&c.Limiter)
	own.Authz = gateway.Authz{Listen: c.Authz.Listen, Tenant: c.Authz.Tenant, Routes: c.Authz.Routes, Trusted: c.Authz.Trusted}
	own.Breaker, own.Breakers = l.BreakerRules()
	own.RLS = gateway.RLS{Listen: c.RLS.Listen}
	var err, noTLS, noMapping error
	own.Mapping, noMapping = gateway.ReadMapping(c.RLS.MappingFile)
	own.Credentials, err = l.Credentials()
	own.Certificate, own.ClientCAs, own.MinTLS, noTLS = l.ServeTLS()
	return own, errors.Join(err, noTLS, noMapping)
}

// limiterOf is how the server decides by itself.
func limiterOf(c *config.ServeLimiter) *limiter.Config {
	own := limiter.Config{
		Exact: c.Mode == config.LimiterOff, Strict: c.Mode == config.LimiterStrict, Outage: limiter.Outage(c.Outage), Timeout: c.Timeout, Minutes: true, Count: true,
		OutageAt: map[admission.Scope]limiter.Outage{},
	}
	for _, at := range c.OutageAt {
		own.OutageAt[at.Scope] = limiter.Outage(at.Outage)
	}
	return &own
}

// leastBurst lets a call with as many questions as there may be through.
const leastBurst = 64
