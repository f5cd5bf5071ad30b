package redisstore_test

import (
	"cmp"
	"slices"
	"strings"
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

// TestCapsOfRecordsEqualTheModel is about tenants whose records have caps, or name tiers that have some, which both change while their jobs run and wait.
func TestCapsOfRecordsEqualTheModel(t *testing.T) {
	t.Parallel()
	conformHalves(t, redistest.Shared(t), "", conformanceSteps, "capped")
}

// recordedCaps tells what records say of caps and rates, and whether scripts know that they say something.
func (d *redisDump) recordedCaps() {
	d.recordedRates()
	d.recordedQueueCaps()
	if d.state["rm"] != "" {
		d.add("records with a cap %s", d.state["rm"])
	}
	named := slices.ContainsFunc(strings.Split(d.state["rt"], ";"), func(one string) bool { return one != "" && one[0] != '=' })
	if counts, _, _ := strings.Cut(d.state["ng"], "|"); strings.Contains(counts, "c1") != (d.state["rm"] != "" || d.state["tc"] != "" && named) {
		d.add("BROKEN ng %q beside %s records with a cap, records by tier %q and caps of tiers %q", d.state["ng"], d.state["rm"], d.state["rt"], d.state["tc"])
	}
}

// TestRatesOfRecordsEqualTheModel is about tenants whose records have rates of dispatches, or none, which change while their jobs wait, as those of the policy do.
func TestRatesOfRecordsEqualTheModel(t *testing.T) {
	t.Parallel()
	conformHalves(t, redistest.Shared(t), "", conformanceSteps, "rated")
}

// recordedRates tells what records say of dispatches and what the policy does, and whether scripts know how many say something.
func (d *redisDump) recordedRates() {
	rows := d.hash("dispatch")
	for tenant, row := range rows {
		d.add("dispatch of %s %s", tenant, row)
	}
	if d.state["rd"] != "" {
		d.add("records with a dispatch %s", d.state["rd"])
	}
	if n := number(d.tb, "0"+d.state["rd"]); n != len(rows) {
		d.add("BROKEN rd %d beside %d records with a dispatch", n, len(rows))
	}
}

// TestCapsInQueuesOfRecordsEqualTheModel is about tenants whose records have caps in single queues, which change while their jobs run and wait, as those of the policy do and what
// operators set and pause.
func TestCapsInQueuesOfRecordsEqualTheModel(t *testing.T) {
	t.Parallel()
	conformHalves(t, redistest.Shared(t), "", conformanceSteps, "queue caps")
}

// recordedQueueCaps tells what records say of caps in single queues and what the policy does, and whether scripts know how many say something.
func (d *redisDump) recordedQueueCaps() {
	rows := d.hash("queuecaps")
	for tenant, row := range rows {
		for one := range strings.SplitSeq(row, ",") {
			queue, caps, _ := strings.Cut(one, "=")
			own, policys, _ := strings.Cut(caps, ";")
			d.add("cap of a record at u:%s:%s %s, of the policy %s", tenant, queue, own, cmp.Or(policys, "0"))
		}
	}
	if d.state["rq"] != "" {
		d.add("records with caps in queues %s", d.state["rq"])
	}
	if n := number(d.tb, "0"+d.state["rq"]); n != len(rows) {
		d.add("BROKEN rq %d beside %d records with caps in queues", n, len(rows))
	}
}

// TestBoundsOfRecordsEqualTheModel is about tenants whose records bound their depth, which changes while jobs wait and are kept aside.
func TestBoundsOfRecordsEqualTheModel(t *testing.T) {
	t.Parallel()
	conformHalves(t, redistest.Shared(t), "", conformanceSteps, "bounded")
}

// recordedBounds tells how many records bound depth, and whether scripts know that some do.
func (d *redisDump) recordedBounds() {
	if d.state["ro"] != "" {
		d.add("records with bounds %s", d.state["ro"])
	}
	if n := number(d.tb, "0"+d.state["nb"]); (n >= 1<<24) != (d.state["ro"] != "") || n%(1<<24) != len(d.hash("bounds")) {
		d.add("BROKEN nb %d beside %s records with bounds", n, d.state["ro"])
	}
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
