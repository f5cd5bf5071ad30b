package limiter

import (
	"cmp"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/rs/zerolog"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/policy"
)

// Config is what a Limiter needs beside a store. The zero value works.
type Config struct {
	// Policy fixes the limits; nil means the policy in the store, followed as it changes.
	Policy *policy.Policy
	// Strict keeps every window within the burst, leases included, for an eighth of the burst; see the package.
	Strict bool
	// Exact turns leases off: every check that no denial answers asks Redis.
	Exact bool
	// Timeout is how long a check waits for Redis: 1ms to 10s, default 50ms. A Redis that answers later is away to the limiter, however
	// well it is: the check is answered as Outage says, and after three calls in a row so are those of the next quarter of a second.
	// That is on purpose, as whoever asks stands in a request's way. Where Redis is known to be slow for a while, a cluster that is
	// rebalanced for one (half of the checks had no answer in 50 ms), a longer time-out asks it all the same, and each check waits.
	Timeout time.Duration
	// Outage is what becomes of checks while Redis is away. OutageAt replaces it for single scopes.
	Outage   Outage
	OutageAt map[admission.Scope]Outage
	// InFlight is the largest number of calls at a time: 1 to 64, default 4. Beside one that is under way another goes out when as many checks wait as the
	// last one carried, or after a millisecond.
	InFlight int
	// MaxScopes bounds the scopes and ways that are remembered: 1,000 or more, default 1,000,000 of each, evenly divided among the
	// partitions of the deployment. Beyond it checks are exact.
	MaxScopes int
	// Minutes also counts checks, and reservations as checks of what they estimate, in the minutes of their scopes, which /rate-limit/metrics shows and dry runs replay. It costs a
	// check some 5 ns, and Redis a call a second for each 500 scopes in use.
	Minutes bool
	// Count also counts the checks that cost no call, for Stats. It costs a check some 5 ns.
	Count bool
	// Logger hears of outages, of new policies, and of hooks of the client's that panic; the zero value is silent.
	Logger zerolog.Logger
}

// Outage says how a scope's checks are answered while Redis is away. Tokens on lease are spent first, until the lease ends.
type Outage string

// The modes.
const (
	// OutageShare admits the scope's rate divided by the limiters that lived last, halved with each minute of the outage, and begins
	// with one burst divided in the same way. It is the default.
	OutageShare Outage = "share"
	// OutageOpen admits everything.
	OutageOpen Outage = "open"
	// OutageClosed refuses everything, for headgate.ReasonUnavailable.
	OutageClosed Outage = "closed"
	// OutageGrace spends what is on lease, also after its end, and then refuses.
	OutageGrace Outage = "grace"
)

const maxTimeout = 10 * time.Second

func (c Config) withDefaults() Config {
	c.Timeout = cmp.Or(c.Timeout, 50*time.Millisecond)
	c.Outage = cmp.Or(c.Outage, OutageShare)
	c.InFlight = cmp.Or(c.InFlight, 4)
	c.MaxScopes = cmp.Or(c.MaxScopes, 1_000_000)
	return c
}

func (c Config) validate() error {
	var bad []error
	if c.Timeout < time.Millisecond || c.Timeout > maxTimeout {
		bad = append(bad, &admission.FieldError{Field: "timeout", Value: c.Timeout.String(), Allowed: "1ms to " + maxTimeout.String()})
	}
	if c.InFlight < 1 || c.InFlight > 64 {
		bad = append(bad, &admission.FieldError{Field: "in flight", Value: strconv.Itoa(c.InFlight), Allowed: "1 to 64 calls"})
	}
	if c.MaxScopes < 1000 {
		bad = append(bad, &admission.FieldError{Field: "max scopes", Value: strconv.Itoa(c.MaxScopes), Allowed: "1000 or more"})
	}
	bad = append(bad, c.Outage.validate("outage"))
	for scope, outage := range c.OutageAt {
		if _, _, _, err := scope.Parts(); err != nil {
			bad = append(bad, fmt.Errorf("outage at: %w", err))
			continue
		}
		bad = append(bad, outage.validate("outage at "+string(scope)))
	}
	return errors.Join(bad...)
}

func (o Outage) validate(field string) error {
	switch o {
	case OutageShare, OutageOpen, OutageClosed, OutageGrace:
		return nil
	}
	return &admission.FieldError{Field: field, Value: strconv.Quote(string(o)), Allowed: "share, open, closed or grace"}
}

// outageOf returns the mode of a scope.
func (c Config) outageOf(scope admission.Scope) Outage {
	return cmp.Or(c.OutageAt[scope], c.Outage)
}
