package load

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/internal/trace"
)

// Spec says how large a plan is. Its fields are the flags of the same names.
type Spec struct {
	// Rate is the mean number of jobs a second, 0.1 to 1e6.
	Rate float64
	// Duration is how long jobs arrive, 100 ms to 24 h. A trace is replayed at the speed that Rate gives.
	Duration time.Duration
	// Tenants is 1 to 100,000, Queues 1 to 63, Priorities 1 to 100.
	Tenants, Queues, Priorities int
	// Slots is 1 to 10,000.
	Slots int
	// Work is how long a handler works, up to 1 h; negative means what the scenario says.
	Work time.Duration
	// Overload is how much arrives in the middle of scenario overload, in parts of what the slots can serve, 1 to 100; with ShapeSlow how many
	// times as long handlers take then.
	Overload float64
	// ClassRatio is how many times as many jobs of scenario overload each class has as the one above it, 1 to 100.
	ClassRatio float64
	// Kept is how many percent of the slots scenario overload keeps for the first class and lends to no other, 0 to 90; zero keeps most of them and lends
	// them.
	Kept int
	// Shape is how the load of scenario overload goes: one of Shapes.
	Shape string
	// Payload is the length of payloads in bytes, 0 to headgate.DefaultMaxPayload.
	Payload int
	// TenantLimit and GlobalLimit are tokens a second; zero means what the scenario says.
	TenantLimit, GlobalLimit int64
	// Seed draws times and names.
	Seed uint64
	// Trace is what the scenario trace replays.
	Trace *trace.Trace
}

// DefaultSpec is what the flags are by default.
func DefaultSpec() Spec {
	return Spec{
		Rate: 1000, Duration: 10 * time.Second, Tenants: 100, Queues: 3, Priorities: 3, Slots: 50, Work: -1, Overload: 2, ClassRatio: 3, Shape: ShapeStep, Payload: 256, Seed: 1,
	}
}

// MaxArrivals bounds a plan: each takes some 200 bytes.
const MaxArrivals = 10_000_000

// Validate returns one headgate.FieldError for each field out of its range.
func (s Spec) Validate() error {
	var bad []error
	check := func(ok bool, flag string, value any, allowed string) {
		if !ok {
			bad = append(bad, &admission.FieldError{Field: flag, Value: fmt.Sprint(value), Allowed: allowed})
		}
	}
	check(s.Rate >= 0.1 && s.Rate <= 1e6, "-rate", s.Rate, "0.1 to 1e6 jobs a second")
	check(s.Duration >= 100*time.Millisecond && s.Duration <= 24*time.Hour, "-duration", s.Duration, "100ms to 24h")
	check(s.Tenants >= 1 && s.Tenants <= 100_000, "-tenants", s.Tenants, "1 to 100000")
	check(s.Queues >= 1 && s.Queues <= 63, "-queues", s.Queues, "1 to 63")
	check(s.Priorities >= 1 && s.Priorities <= admission.MaxClassWeight, "-priorities", s.Priorities, "1 to 100 classes")
	check(s.Slots >= 1 && s.Slots <= 10_000, "-slots", s.Slots, "1 to 10000 jobs at a time")
	check(s.Work <= time.Hour, "-work", s.Work, "0s to 1h, or negative for what the scenario says")
	check(s.Overload >= 1 && s.Overload <= 100, "-overload", s.Overload, "1 to 100 times what the slots can serve")
	check(s.ClassRatio >= 1 && s.ClassRatio <= 100, "-class-ratio", s.ClassRatio, "1 to 100 times the jobs of the class above")
	check(s.Kept >= 0 && s.Kept <= 90, "-kept", s.Kept, "0 to 90 percent of the slots")
	_, known := shapes[s.Shape]
	check(known, "-shape", strconv.Quote(s.Shape), "one of "+strings.Join(Shapes(), ", "))
	check(s.Payload >= 0 && s.Payload <= admission.DefaultMaxPayload, "-payload", s.Payload, "0 to "+strconv.Itoa(admission.DefaultMaxPayload)+" bytes")
	most := int64(admission.MaxLimitTokens)
	tokens := "0, for what the scenario says, to 1000000000 tokens a second"
	check(s.TenantLimit >= 0 && s.TenantLimit <= most, "-tenant-limit", s.TenantLimit, tokens)
	check(s.GlobalLimit >= 0 && s.GlobalLimit <= most, "-global-limit", s.GlobalLimit, tokens)
	if n := s.Rate * s.Duration.Seconds(); len(bad) == 0 && (n < 1 || n > MaxArrivals) {
		check(false, "-rate x -duration", fmt.Sprintf("%.0f", n), fmt.Sprintf("1 to %d jobs", MaxArrivals))
	}
	return errors.Join(bad...)
}

// Scenarios are the names of all scenarios, in the order of the package comment.
func Scenarios() []string {
	var names []string
	for i := range recipes {
		names = append(names, recipes[i].name)
	}
	return append(names, scenarioTrace)
}

// CheckScenario returns a headgate.FieldError for a name that is no scenario.
func CheckScenario(name string) error {
	if slices.Contains(Scenarios(), name) {
		return nil
	}
	return &admission.FieldError{Field: "-scenario", Value: strconv.Quote(name), Allowed: "all, or some of " + strings.Join(Scenarios(), ", ")}
}
