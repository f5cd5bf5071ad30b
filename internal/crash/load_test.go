package crash_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/policy"
	"github.com/headgate/headgate/store"
)

var stormQueues = []store.QueueWeight{{Queue: "mail", Weight: 2}, {Queue: "hook", Weight: 1}}

// Buckets that hardly refill hold to the token what was charged. The burst of a tenant is the largest that one token a
// day may fill.
const (
	tenantBurst  = 366
	globalPerDay = 1_000
	globalBurst  = 366_000
	// A producer's jobs go to so many tenants at a time, and to others after so many jobs.
	tenantsAtATime = 8
	jobsOfTenants  = 1_600
	uniqueKeys     = 20
)

// stormPolicy remembers ids for longer than any of these tests takes.
func stormPolicy() policy.Policy {
	p := policy.Policy{
		Version: 1, DedupWindow: time.Hour,
		Global: admission.Limit{Tokens: globalPerDay, Per: 24 * time.Hour, Burst: globalBurst},
		Tiers: map[string]policy.Tier{policy.StandardTier: {
			Limit: admission.Limit{Tokens: 1, Per: 24 * time.Hour, Burst: tenantBurst},
		}},
	}
	if os.Getenv(otherVariable) == "" { // That release knows of no usage.
		p.Usage = &policy.UsageRules{}
	}
	return p
}

// putPolicy stores version 1 as an operator would.
func putPolicy(tb testing.TB, s store.Deployment, p policy.Policy, queues ...store.QueueSettings) {
	tb.Helper()
	text, err := policy.Marshal(p)
	if err == nil {
		err = s.PutPolicy(tb.Context(), store.PolicyUpdate{Version: 1, Text: text, Window: p.DedupWindow, Queues: queues, Usage: p.Usage != nil})
	}
	if err != nil {
		tb.Fatal(err)
	}
}

// actualHeader says what a job's handler is to tell that it has cost.
const actualHeader = "actual"

// stormJob returns a job of a producer. It is the same whenever and by whatever process it is asked for. Its payload
// says how often it fails, how many milliseconds it runs, and how it ends.
func stormJob(of, number int) admission.Job {
	dice := rand.New(rand.NewPCG(uint64(of), uint64(number)))
	tenant := fmt.Sprintf("t%d-%d", of, number/jobsOfTenants*tenantsAtATime+number%tenantsAtATime)
	fails, fate, millis := 0, "done", 1+dice.IntN(15)
	j := admission.NewJob(tenant, stormQueues[dice.IntN(2)].Queue, "work", nil)
	j.ID = "j" + strconv.Itoa(of) + "-" + strconv.Itoa(number)
	j.Cost = admission.Tokens(1 + dice.IntN(3))
	j.Priority = admission.DefaultClasses()[dice.IntN(3)].Name
	switch dice.IntN(20) {
	case 0:
		fails = 1 + dice.IntN(2)
	case 1:
		fails, j.MaxAttempts = 9, 2
	case 2:
		fate = "discard"
	case 3:
		millis = 300 + dice.IntN(300)
	}
	switch dice.IntN(10) {
	case 0:
		j.Delay = time.Duration(100+dice.IntN(900)) * time.Millisecond
	case 1:
		j.Deadline = time.Date(2089, 1, 1, 0, 0, 0, 0, time.UTC)
	case 2:
		j.Unique = admission.Unique{Key: "u" + strconv.Itoa(dice.IntN(uniqueKeys)), For: 2 * time.Second}
	case 3:
		j.Downstream = "api"
	}
	if j.Downstream != "" {
		fails, j.MaxAttempts = 0, 0 // A breaker that opens is another test's.
	}
	j.Headers = map[string]string{actualHeader: strconv.Itoa(1 + dice.IntN(5))} // less than it reserves, as much, or more
	j.Payload = fmt.Appendf(nil, "%d %d %s", fails, millis, fate)
	if dice.IntN(50) == 0 { // It stands under a key of its own.
		j.Payload = fmt.Appendf(j.Payload, " %5000d", number)
	}
	return j
}
