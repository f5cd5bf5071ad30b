package redisstore_test

import (
	"sync/atomic"
	"testing"

	"pgregory.net/rapid"

	"github.com/headgate/headgate/internal/redistest"
)

// TestAlgorithmsEqualTheModel is about limits of all algorithms alone, which change from one to another, of few tenants whose buckets are seldom full.
func TestAlgorithmsEqualTheModel(t *testing.T) {
	t.Parallel()
	conform(t, redistest.Shared(t), "", conformanceSteps, false, "algorithms")
}

// TestLoneJobsEqualTheModel is about jobs that come one by one to one pool of one queue, with gates on the way of some: those that may go straight.
func TestLoneJobsEqualTheModel(t *testing.T) {
	t.Parallel()
	conformHalves(t, redistest.Shared(t), "", conformanceSteps, "alone")
}

// TestSharesOfRecordsEqualTheModel is about tenants whose records name tiers and weights, which change while their jobs wait.
func TestSharesOfRecordsEqualTheModel(t *testing.T) {
	t.Parallel()
	conform(t, redistest.Shared(t), "", conformanceSteps, false, "shares")
}

// TestBypassesEqualTheModel is about jobs of which some go beside the limits of their queue and class, and tell another cost than they had reserved.
func TestBypassesEqualTheModel(t *testing.T) {
	t.Parallel()
	conform(t, redistest.Shared(t), "", conformanceSteps, false, "bypass")
	if walkBypassed.Load() == 0 {
		t.Error("no job went beside a limit")
	}
}

// walkBypassed counts the jobs of all sequences that went beside limits.
var walkBypassed atomic.Int64

// walkAccounts are the downstreams of jobs that call a service for one of its accounts.
var walkAccounts = []string{"api+x", "api+y", "api+z", "api+x", "api", "db+x", ""}

// TestAccountsEqualTheModel is about jobs that call a service for one of its accounts: caps and rates of the service, of each account and of one,
// and breakers, which are the service's.
func TestAccountsEqualTheModel(t *testing.T) {
	t.Parallel()
	conform(t, redistest.Shared(t), "", conformanceSteps, false, "accounts")
}

func (w *walk) number(name string, low, high int) int {
	return rapid.IntRange(low, high).Draw(w.rt, name)
}

func pick[T any](w *walk, name string, from []T) T { return rapid.SampledFrom(from).Draw(w.rt, name) }
