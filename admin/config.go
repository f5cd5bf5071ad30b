package admin

import (
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

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/admin/access"
	"github.com/headgate/headgate/admin/internal/api"
	"github.com/headgate/headgate/breaker"
	"github.com/headgate/headgate/lua"
)

// Enqueuer is what the server enqueues and redrives by; a *producer.Producer is one.
type Enqueuer = api.Enqueuer

// Defaults and bounds of a Config.
const (
	DefaultMaxBody     = 2 << 20
	MaxMaxBody         = 64 << 20
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
	Store    *lua.Store
	Enqueuer Enqueuer
	// Credentials are taken at first; SetCredentials changes them.
	Credentials access.Credentials
	// Open takes every caller for an admin. It is for a loopback address alone.
	Open bool
	// TLS serves https when it has certificates; with ClientCAs clients must show one of theirs.
	TLS *tls.Config
	// Allow are the addresses that may call, at first; none means all. SetAllow changes them.
	Allow []netip.Prefix
	// MaxBody is the largest body in bytes, 1 KiB to MaxMaxBody; zero means DefaultMaxBody.
	MaxBody int64
	// Timeout is how long a handler may take, up to MaxTimeout; zero means DefaultTimeout.
	Timeout time.Duration
	// AdminLimit is what one credential may call, of routes that are not data; the zero Limit means DefaultAdminRate a
	// second with bursts of DefaultAdminBurst.
	AdminLimit headgate.Limit
	// Breaker has the rules for calls of downstreams by workers in other languages, Breakers those of single downstreams: what
	// a slow call is, and all rules of a breaker that no worker in Go has reported to.
	Breaker  breaker.Config
	Breakers map[string]breaker.Config
	// OldHeaders also sends X-RateLimit-Limit, -Remaining and -Reset with decisions.
	OldHeaders bool
	// Registry gets the server's metrics and is what /metrics shows; nil means one of its own.
	Registry *prometheus.Registry
}

func (c Config) withDefaults() Config {
	if c.MaxBody == 0 {
		c.MaxBody = DefaultMaxBody
	}
	if c.Timeout == 0 {
		c.Timeout = DefaultTimeout
	}
	if c.AdminLimit == (headgate.Limit{}) {
		c.AdminLimit = headgate.PerSecond(DefaultAdminRate, DefaultAdminBurst)
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
		bad = append(bad, &headgate.FieldError{Field: "store", Value: "nil", Allowed: "one"})
	}
	if c.Enqueuer == nil {
		bad = append(bad, &headgate.FieldError{Field: "enqueuer", Value: "nil", Allowed: "one"})
	}
	if c.Credentials.None() && !c.Open {
		bad = append(bad, errNoCredentials)
	}
	if c.MaxBody < 1<<10 || c.MaxBody > MaxMaxBody {
		bad = append(bad, &headgate.FieldError{Field: "max body", Value: strconv.FormatInt(c.MaxBody, 10), Allowed: fmt.Sprintf("%d to %d bytes", 1<<10, MaxMaxBody)})
	}
	if c.Timeout < time.Millisecond || c.Timeout > MaxTimeout {
		bad = append(bad, &headgate.FieldError{Field: "timeout", Value: c.Timeout.String(), Allowed: "1ms to " + MaxTimeout.String()})
	}
	bad = append(bad, validateAllow(c.Allow))
	bad = append(bad, c.validateBreakers()...)
	if c.TLS != nil && c.TLS.MinVersion != 0 && c.TLS.MinVersion < minimumTLS {
		bad = append(bad, &headgate.FieldError{Field: "TLS version", Value: tls.VersionName(c.TLS.MinVersion), Allowed: "TLS 1.2 or TLS 1.3"})
	}
	return errors.Join(append(bad, c.AdminLimit.Validate("admin calls"))...)
}

func (c Config) validateBreakers() (bad []error) {
	if err := c.Breaker.Validate(); err != nil {
		bad = append(bad, fmt.Errorf("breaker: %w", err))
	}
	for _, downstream := range slices.Sorted(maps.Keys(c.Breakers)) {
		if err := c.Breakers[downstream].Validate(); err != nil {
			bad = append(bad, fmt.Errorf("breaker of downstream %s: %w", downstream, err))
		}
	}
	return bad
}

func validateAllow(networks []netip.Prefix) error {
	if len(networks) <= maxAllowedPrefixes {
		return nil
	}
	return &headgate.FieldError{Field: "allow", Value: strconv.Itoa(len(networks)), Allowed: fmt.Sprintf("up to %d networks", maxAllowedPrefixes)}
}
