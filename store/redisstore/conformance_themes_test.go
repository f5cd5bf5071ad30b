package redisstore_test

import (
	"testing"

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

// walkAccounts are the downstreams of jobs that call a service for one of its accounts.
var walkAccounts = []string{"api+x", "api+y", "api+z", "api+x", "api", "db+x", ""}

// TestAccountsEqualTheModel is about jobs that call a service for one of its accounts: caps and rates of the service, of each account and of one,
// and breakers, which are the service's.
func TestAccountsEqualTheModel(t *testing.T) {
	t.Parallel()
	conform(t, redistest.Shared(t), "", conformanceSteps, false, "accounts")
}
