package figures

import (
	"time"

	"github.com/headgate/headgate/loadtest/internal/load"
	"github.com/headgate/headgate/loadtest/internal/record"
	"github.com/headgate/headgate/store"
)

// Run is what happened in a run: what figures are worked out of.
type Run struct {
	Plan *load.Plan
	// System and Store name what was measured.
	System, Store string
	Book          *record.Book
	// Wall is the time from the start until all had settled.
	Wall        time.Duration
	Interrupted bool
	Account     Account
	Breakers    []BreakerChange
	// Peaks are the most jobs in handlers at a time, of the queues that have a cap.
	Peaks map[string]int
}

// Account is what a system holds when a run is over.
type Account struct {
	// Held counts the jobs that are in and have neither completed nor died.
	Held int
	// Census is Headgate's own count, nil of others.
	Census *store.Census
	// Gated says that something which is meant to hold jobs back does.
	Gated bool
}

// BreakerChange is a breaker that was seen in another state than before.
type BreakerChange struct {
	At                time.Duration
	Downstream, State string
}
