package admin

import (
	"cmp"
	"crypto/tls"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"

	"github.com/headgate/headgate/admin/access"
	"github.com/headgate/headgate/admin/internal/api"
	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/breaker"
	"github.com/headgate/headgate/internal/guard"
	"github.com/headgate/headgate/store"
)

// Enqueuer is what the server enqueues and redrives by; a *producer.Producer is one.
type Enqueuer = api.Enqueuer

// Limiter is what decides checks without a call of Redis each; a *limiter.Limiter is one.
type Limiter = api.Limiter

// Defaults and bounds of a Config.
const (
	// DefaultMaxBody has room for the largest payload in base64.
	DefaultMaxBody = (admission.DefaultMaxPayload+2)/3*4 + maxFields
	MaxMaxBody     = 64 << 20

	DefaultMaxConnections           = 4096
	DefaultMaxConnectionsPerAddress = 1024
	MaxMaxConnections               = 1_000_000

	DefaultMaxCalls    = 256
	MaxMaxCalls        = 100_000
	DefaultMaxBytes    = 64 << 20
	MinMaxBytes        = 8 << 20
	MaxMaxBytes        = 16 << 30
	DefaultTenantRate  = 1000
	DefaultTenantBytes = 4 << 20

	DefaultTimeout     = 10 * time.Second
	MaxTimeout         = 5 * time.Minute
	DefaultAdminRate   = 50
	DefaultAdminBurst  = 100
	maxHeaderBytes     = 16 << 10
	readHeaderTimeout  = 5 * time.Second
	idleTimeout        = time.Minute
	shutdownTimeout    = 15 * time.Second
	minimumTLS         = tls.VersionTLS12
	failureRate        = 1
	failureBurst       = 20
	maxCallers         = 10_000
	maxAllowedPrefixes = 1000
)

// Config is what a Server needs. Store and Enqueuer are required, and credentials unless Open; all else works as zero.
type Config struct {
	// Logger gets a line a call: who, what, from where, how it ended. Its zero value is silent.
	Logger   zerolog.Logger
	Store    store.Deployment
	Enqueuer Enqueuer
	// Limiter answers checks that take tokens, from what it has on lease and without Redis by its outage modes. It is its owner's to close, and
	// is to count minutes (limiter.Config.Minutes). Nil asks Redis for each.
	Limiter Limiter
	// Credentials are taken at first; SetCredentials changes them.
	Credentials access.Credentials
	// Open takes every caller for an admin. It is for a loopback address alone.
	Open bool
	// TLS serves https when it has certificates; with ClientCAs clients must show one of theirs.
	TLS *tls.Config
	// Allow are the addresses that may call, at first; none means all. SetAllow changes them.
	Allow []netip.Prefix
	// MaxBody is the largest body of a job with its payload in bytes, 1 KiB to MaxMaxBody; zero means DefaultMaxBody. Others may have
	// 64 KiB, a result 88 KiB more, and a policy its own 4 MiB more.
	MaxBody int64
	// Bounds are those of what is under way.
	Bounds

	// Guard is what the process may use of its machine before calls are refused that would begin something: all but health, metrics, the
	// description, and those of workers about jobs that they hold. Its zero value is none, and without Serve there is none. A minute's
	// requests are the calls that begin; from Guard.WarnAt of MaxCalls and MaxConnections on it is logged, too.
	Guard GuardConfig
	// Guarded is called when something that Guard limits was looked at first, and when it has come to another state; nil is not.
	Guarded func(GuardChange)

	// Timeout is how long a handler may take, up to MaxTimeout; zero means DefaultTimeout.
	Timeout time.Duration
	// AdminLimit is what one credential may call, of routes that are not data; the zero Limit means DefaultAdminRate a
	// second with bursts of DefaultAdminBurst.
	AdminLimit admission.Limit
	// Breaker has the rules for calls of downstreams by workers in other languages, Breakers those of single downstreams: what
	// a slow call is, and all rules of a breaker that no worker in Go has reported to.
	Breaker  breaker.Config
	Breakers map[string]breaker.Config
	// OldHeaders also sends X-RateLimit-Limit, -Remaining, -Reset and -Retry-After with decisions.
	OldHeaders bool
	// Version names the build in health; empty says nothing.
	Version string
	// Registry gets the server's metrics and is what /metrics shows; nil means one of its own.
	Registry *prometheus.Registry

	// sampler measures for the guard; nil is the process. Tests have others.
	sampler guard.Sampler
}

// GuardConfig is what a process may use of its machine.
type GuardConfig = guard.Config

// GuardDelays are how long is waited by how near the process is to a limit.
type GuardDelays = guard.Delays

// GuardChange is something that came nearer to its limit or went away from it.
type GuardChange = guard.Change

// Bounds are how much of what a server takes at a time, and of one tenant. Its zero value has the defaults.
type Bounds struct {
	// MaxConnections bounds the connections of Serve, and those of one address, or of one /64 of IPv6, MaxConnectionsPerAddress: 1 to
	// MaxMaxConnections; zero means the defaults. There are fewer where the process may not have as many descriptors and 128 more.
	// A tenant may have a quarter.
	MaxConnections, MaxConnectionsPerAddress int
	// MaxCalls is how many calls are under way at a time, 1 to MaxMaxCalls, health and metrics apart; zero means DefaultMaxCalls. The
	// others wait for their turn, up to 5 s. A tenant may have a sixteenth.
	MaxCalls int
	// MaxBytes bounds the bodies of the calls under way, in bytes together, MinMaxBytes and MaxBody at least, up to MaxMaxBytes; zero
	// means DefaultMaxBytes. A tenant may have a sixteenth, or one body.
	MaxBytes int64
	// TenantLimit is what the credentials of one tenant may call together of routes that are data; the zero Limit means
	// DefaultTenantRate a second with bursts of a quarter. A call that asks several questions counts as so many.
	TenantLimit admission.Limit
	// TenantBytes is how many bytes of bodies a second they may send, 1 KiB to MaxMaxBytes; zero means DefaultTenantBytes.
	TenantBytes int64
}

func (c Config) withDefaults() Config {
	c.MaxBody, c.Timeout = cmp.Or(c.MaxBody, DefaultMaxBody), cmp.Or(c.Timeout, DefaultTimeout)
	c.MaxConnections = cmp.Or(c.MaxConnections, DefaultMaxConnections)
	c.MaxConnectionsPerAddress = cmp.Or(c.MaxConnectionsPerAddress, DefaultMaxConnectionsPerAddress)
	c.MaxCalls, c.MaxBytes = cmp.Or(c.MaxCalls, DefaultMaxCalls), cmp.Or(c.MaxBytes, max(DefaultMaxBytes, c.MaxBody))
	c.TenantBytes = cmp.Or(c.TenantBytes, DefaultTenantBytes)
	if c.TenantLimit == (admission.Limit{}) {
		c.TenantLimit = admission.PerSecond(DefaultTenantRate).WithBurst(DefaultTenantRate / 4)
	}
	if c.AdminLimit == (admission.Limit{}) {
		c.AdminLimit = admission.PerSecond(DefaultAdminRate).WithBurst(DefaultAdminBurst)
	}
	if c.Registry == nil {
		c.Registry = prometheus.NewRegistry()
	}
	return c
}

// errNoCredentials is a server that nobody could call, or everybody.
var errNoCredentials = errors.New("no key and no token would be taken: make a key with headgate key new, or say that the server is open to everybody")

func (c Config) validate() error {
	var bad []error
	if c.Store == nil {
		bad = append(bad, &admission.FieldError{Field: "store", Value: "nil", Allowed: "one"})
	}
	if c.Enqueuer == nil {
		bad = append(bad, &admission.FieldError{Field: "enqueuer", Value: "nil", Allowed: "one"})
	}
	if c.Credentials.None() && !c.Open {
		bad = append(bad, errNoCredentials)
	}
	within := func(name string, value, low, high int64, unit string) {
		if value < low || value > high {
			bad = append(bad, &admission.FieldError{Field: name, Value: strconv.FormatInt(value, 10), Allowed: fmt.Sprintf("%d to %d%s", low, high, unit)})
		}
	}
	within("max body", c.MaxBody, 1<<10, MaxMaxBody, " bytes")
	within("max connections", int64(c.MaxConnections), 1, MaxMaxConnections, "")
	within("max connections per address", int64(c.MaxConnectionsPerAddress), 1, MaxMaxConnections, "")
	within("max calls", int64(c.MaxCalls), 1, MaxMaxCalls, "")
	within("max bytes", c.MaxBytes, max(MinMaxBytes, c.MaxBody), MaxMaxBytes, " bytes")
	within("tenant bytes", c.TenantBytes, 1<<10, MaxMaxBytes, " bytes a second")
	if c.Timeout < time.Millisecond || c.Timeout > MaxTimeout {
		bad = append(bad, &admission.FieldError{Field: "timeout", Value: c.Timeout.String(), Allowed: "1ms to " + MaxTimeout.String()})
	}
	if err := c.Guard.Validate(); err != nil {
		bad = append(bad, fmt.Errorf("guard: %w", err))
	}
	bad = append(bad, validateAllow(c.Allow))
	bad = append(bad, c.validateBreakers()...)
	if c.TLS != nil && c.TLS.MinVersion != 0 && c.TLS.MinVersion < minimumTLS {
		bad = append(bad, &admission.FieldError{Field: "TLS version", Value: tls.VersionName(c.TLS.MinVersion), Allowed: "TLS 1.2 or TLS 1.3"})
	}
	return errors.Join(append(bad, c.AdminLimit.Validate("admin limit"), c.TenantLimit.Validate("tenant limit"))...)
}

func (c Config) validateBreakers() (bad []error) {
	if err := admission.FieldErrors(c.Breaker.Validate()); err != nil {
		bad = append(bad, fmt.Errorf("breaker: %w", err))
	}
	for _, downstream := range slices.Sorted(maps.Keys(c.Breakers)) {
		if err := admission.FieldErrors(c.Breakers[downstream].Validate()); err != nil {
			bad = append(bad, fmt.Errorf("breaker of downstream %s: %w", downstream, err))
		}
	}
	return bad
}

func validateAllow(networks []netip.Prefix) error {
	if len(networks) <= maxAllowedPrefixes {
		return nil
	}
	return &admission.FieldError{Field: "allow", Value: strconv.Itoa(len(networks)), Allowed: fmt.Sprintf("up to %d networks", maxAllowedPrefixes)}
}
