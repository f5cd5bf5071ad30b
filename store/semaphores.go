package store

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"time"

	"github.com/headgate/headgate/admission"
)

// Semaphores is permits on lease: limits of what is done at a time outside of jobs. Time is the store's, and no client's: a clock that
// never goes back, and goes on by five seconds a call of the partition at most, so that a step of the store's clock ends no lease.
type Semaphores interface {
	// Acquire leases permits. Where another version of the policy is in force nothing is done and the error is ErrStale. The same token again
	// costs nothing more, and renews the lease.
	Acquire(ctx context.Context, ask Acquire) (Permit, error)
	// Extend has a lease end so long from now. The error is ErrLeaseEnded where it has ended, or was released.
	Extend(ctx context.Context, name, token string, lease time.Duration) (Permit, error)
	// Release gives permits back, or a place in line. It may be sent again; ErrLeaseEnded for a minute after the lease has ended by itself.
	Release(ctx context.Context, name, token string) error
	// Semaphore returns what one holds; nothing is kept of one that nobody uses.
	Semaphore(ctx context.Context, name string) (SemaphoreState, error)
	// SemaphoreNames returns the semaphores in use, at most MaxSemaphores a partition, in order.
	SemaphoreNames(ctx context.Context) ([]string, error)
}

// Bounds of semaphores, of a partition where nothing else is said.
const (
	MaxSemaphores         = 10_000
	MaxSemaphoresOfTenant = 1_000
	// MaxSemaphoreHolders and MaxSemaphoreLine are those of one semaphore.
	MaxSemaphoreHolders = 10_000
	MaxSemaphoreLine    = 1_000
	// MaxPermits is the largest limit.
	MaxPermits = 1_000_000
	// SemaphorePatience is for how long a place in line is kept since its last call, and a permit that was leased to it unheard.
	SemaphorePatience = 2 * time.Second
	// MinSemaphoreLease and MaxSemaphoreLease bound a lease.
	MinSemaphoreLease, MaxSemaphoreLease = time.Second, time.Hour //nolint:revive // the bounds of one thing
)

// Acquire asks for permits.
type Acquire struct {
	// Version is that of the policy from which Max comes.
	Version int64
	// Record is the version of the record of the semaphore's tenant that Max comes from too, NoRecord for none; zero where tenants have no records, or it is no tenant's. Elsewhere says
	// that the record is in another partition, and has been compared.
	Record    int64
	Elsewhere bool
	// Name is "NAME", or "TENANT:NAME" for one of a tenant. Token is the caller's name of this acquisition, unlike any other: 1-128 bytes.
	Name, Token string
	// Permits are asked for, 1 or more, and Max are there, 0 to MaxPermits.
	Permits, Max int
	Lease        time.Duration
	// Queue has who finds no room stand in line, for SemaphorePatience since its last call.
	Queue bool
}

// Tenant is the tenant whose semaphore it is, empty for nobody's.
func (a *Acquire) Tenant() string {
	tenant, _, bound := strings.Cut(a.Name, ":")
	if !bound {
		return ""
	}
	return tenant
}

// Validate returns a *headgate.FieldError for each field that is none.
func (a *Acquire) Validate() error {
	var permits error
	if a.Permits < 1 || a.Permits > MaxPermits {
		permits = &admission.FieldError{Field: "permits", Value: strconv.Itoa(a.Permits), Allowed: fmt.Sprintf("1 to %d", MaxPermits)}
	}
	return errors.Join(ValidateSemaphore(a.Name), admission.ValidateName("token", a.Token, false), permits, ValidateSemaphoreLease(a.Lease))
}

// ValidateSemaphore returns a *headgate.FieldError if a name is none of a semaphore.
func ValidateSemaphore(name string) error {
	tenant, own, bound := strings.Cut(name, ":")
	if !bound {
		return admission.ValidateName("semaphore", name, true)
	}
	if err := admission.ValidateTenant(tenant); err != nil {
		return err
	}
	return admission.ValidateName("semaphore", own, true)
}

// ValidateSemaphoreLease returns a *headgate.FieldError if a lease is too short or too long.
func ValidateSemaphoreLease(lease time.Duration) error {
	if lease < MinSemaphoreLease || lease > MaxSemaphoreLease {
		return &admission.FieldError{Field: "lease", Value: lease.String(), Allowed: "1s to 1h"}
	}
	return nil
}

// ErrLeaseEnded means that permits are held no more: the lease ended before it was extended or released.
var ErrLeaseEnded = errors.New("the lease of the permits has ended")

// SemaphoreAnswer says what became of an Acquire.
type SemaphoreAnswer string

// The answers.
const (
	SemaphoreGranted SemaphoreAnswer = "granted"
	// SemaphoreWaiting stands in line.
	SemaphoreWaiting SemaphoreAnswer = "waiting"
	// SemaphoreRefused finds no room; SemaphoreCrowded not even in the line.
	SemaphoreRefused SemaphoreAnswer = "refused"
	SemaphoreCrowded SemaphoreAnswer = "crowded"
	// SemaphoreLarge asks for more than the limit, SemaphoreOther with a token that is for another number of permits.
	SemaphoreLarge SemaphoreAnswer = "large"
	SemaphoreOther SemaphoreAnswer = "other"
	// SemaphoreNamed finds too many semaphores in use, of all or of the tenant.
	SemaphoreNamed SemaphoreAnswer = "named"
)

// Permit is the answer to an Acquire or Extend.
type Permit struct {
	Answer SemaphoreAnswer
	// Expires is when the lease ends, by the store's clock, and Left how long that is; of a refusal Left is until the first lease of all ends.
	Expires time.Time
	Left    time.Duration
	// Max is the limit, Held what is held after the call, Waiting who waits, and Ahead how many of them before the caller.
	Max, Held, Waiting, Ahead int
}

// Granted says that the permits are held.
func (p *Permit) Granted() bool { return p.Answer == SemaphoreGranted }

// SemaphoreState is what a semaphore holds.
type SemaphoreState struct {
	Name string
	// Max is the limit as the last Acquire knew it.
	Max, Held, Waiting int
	// Oldest is for how long the first in line has waited; 0 where nobody waits.
	Oldest time.Duration
}

// How often one in line asks: the first every pollFirst, who stands behind as many times later, and all at least every pollLast, which is an
// eighth of the time for which a place is kept: 540 calls a second of 64 in line, 4,300 of 1,000.
const (
	pollFirst = 10 * time.Millisecond
	pollLast  = SemaphorePatience / 8
)

// SemaphorePoll is how long one in line waits before it asks again, by how many are ahead: up to a quarter less at random, so that many do
// not ask at once.
func SemaphorePoll(ahead int) time.Duration {
	most := min(pollFirst*time.Duration(1+min(ahead, 100)), pollLast)
	return most - rand.N(most/4) //nolint:gosec // spreads calls, decides nothing
}
