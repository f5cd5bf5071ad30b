package report

import (
	"encoding/json"
	"fmt"
	"io"
	"math"
	"time"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/cmd/headgate/internal/ledger"
	"github.com/headgate/headgate/store"
)

// Run is what a report is made of.
type Run struct {
	// Rows are all of the input, BadRows those that could not be a job, Excluded those that were to be left out.
	Rows, BadRows, Excluded int
	Figures                 ledger.Figures
	// Census is what Redis held at the end.
	Census store.Census
	// States are the breakers' at the end, by downstream.
	States      map[string]string
	Wall        time.Duration
	Interrupted bool
}

// Summary is the JSON of a run; the package comment explains the fields.
type Summary struct {
	Rows           int                          `json:"rows"`
	BadRows        int                          `json:"bad_rows"`
	Submitted      int                          `json:"submitted"`
	Admitted       int                          `json:"admitted"`
	Duplicates     int                          `json:"duplicates"`
	Refused        map[admission.Reason]int     `json:"refused"`
	Completed      int64                        `json:"completed"`
	FailedAttempts int                          `json:"failed_attempts"`
	Expired        int64                        `json:"expired"`
	Dropped        int64                        `json:"dropped"`
	Cancelled      int64                        `json:"cancelled"`
	Dead           int64                        `json:"dead"`
	Waiting        int64                        `json:"waiting"`
	Conserved      bool                         `json:"conserved"`
	Classes        map[admission.Priority]Class `json:"classes"`
	OrderHead      string                       `json:"order_head"`
	Tenants        Tenants                      `json:"tenants"`
	Breakers       []Breaker                    `json:"breakers"`
	WallS          float64                      `json:"wall_s"`
	JobsPerS       float64                      `json:"jobs_per_s"`

	EstimateMedianError float64               `json:"estimate_median_error"`
	EstimateCompared    int                   `json:"estimate_compared"`
	Healthy             Healthy               `json:"healthy"`
	Downstreams         map[string]Downstream `json:"downstreams"`
	ExcludedRows        int                   `json:"excluded_rows"`
	Interrupted         bool                  `json:"interrupted"`
}

// Class is one class of the queue.
type Class struct {
	Dispatched   int     `json:"dispatched"`
	WaitP50Ms    float64 `json:"wait_p50_ms"`
	WaitP99Ms    float64 `json:"wait_p99_ms"`
	WaitStepsP50 int     `json:"wait_steps_p50"`
	WaitStepsP99 int     `json:"wait_steps_p99"`
}

// Tenants are all tenants of the run.
type Tenants struct {
	Count          int     `json:"count"`
	Jain           float64 `json:"jain"`
	LightWaitP99Ms float64 `json:"light_wait_p99_ms"`
	JainCompared   int     `json:"jain_compared"`
}

// Breaker is one that opened.
type Breaker struct {
	Downstream string `json:"downstream"`
	State      string `json:"state"`
	Opened     int    `json:"opened"`
	HeldBack   int    `json:"held_back"`
}

// Healthy is every downstream whose breaker never opened, together.
type Healthy struct {
	Dispatched   int `json:"dispatched"`
	WaitStepsP50 int `json:"wait_steps_p50"`
	WaitStepsP99 int `json:"wait_steps_p99"`
	WaitStepsMax int `json:"wait_steps_max"`
	// The same, counted in dispatches of such downstreams alone.
	OwnStepsP50 int `json:"wait_own_steps_p50"`
	OwnStepsP99 int `json:"wait_own_steps_p99"`
	OwnStepsMax int `json:"wait_own_steps_max"`
}

// Downstream is one downstream.
type Downstream struct {
	Dispatched     int `json:"dispatched"`
	FailedAttempts int `json:"failed_attempts"`
	WaitStepsP50   int `json:"wait_steps_p50"`
	WaitStepsP99   int `json:"wait_steps_p99"`
}

// NewSummary works the summary of a run out.
func NewSummary(run Run) Summary {
	f := run.Figures
	s := Summary{
		Rows: run.Rows, BadRows: run.BadRows, ExcludedRows: run.Excluded, Interrupted: run.Interrupted,
		Admitted: f.Progress.Admitted, Duplicates: f.Progress.Duplicates, Refused: f.Refused, FailedAttempts: f.Progress.Failures,
		OrderHead: f.OrderHead, Classes: map[admission.Priority]Class{}, Breakers: []Breaker{}, Downstreams: map[string]Downstream{},
		WallS: round(run.Wall.Seconds(), 3), EstimateMedianError: round(f.Estimate.MedianError, 4), EstimateCompared: f.Estimate.Compared,
	}
	s.Submitted = s.Admitted + s.Duplicates + f.Progress.Refused
	if run.Wall > 0 {
		s.JobsPerS = round(float64(f.Progress.Started)/run.Wall.Seconds(), 1)
	}
	s.take(run.Census)
	for name, g := range f.Classes {
		s.Classes[name] = Class{g.Dispatched, millis(g.Wait.P50), millis(g.Wait.P99), g.Steps.P50, g.Steps.P99}
	}
	for name, g := range f.Downstreams {
		s.Downstreams[name] = Downstream{g.Dispatched, g.Failures, g.Steps.P50, g.Steps.P99}
	}
	all, own := f.Healthy.Steps, f.HealthySteps
	s.Healthy = Healthy{f.Healthy.Dispatched, all.P50, all.P99, all.Max, own.P50, own.P99, own.Max}
	s.Tenants = Tenants{len(f.Tenants), round(f.Fairness.Jain, 6), millis(f.LightWait.P99), f.Fairness.Compared}
	for _, b := range f.Breakers {
		s.Breakers = append(s.Breakers, Breaker{b.Downstream, run.States[b.Downstream], b.Opened, b.HeldBack})
	}
	return s
}

// take fills in what Redis holds, and whether it adds up. Dead letters of the reasons with a count of their own, and
// those that were purged or evicted, are in that of the reason; a run redrives none.
func (s *Summary) take(c store.Census) {
	s.Completed = c.Left["completed"]
	s.Cancelled = c.Left["cancelled"]
	s.Dropped = c.Died["dropped"]
	timedOut := c.Died["expired"] + c.Died["queue_timeout"]
	s.Expired = timedOut + c.Left["expired"] + c.Left["queue_timeout"]
	s.Dead = c.Dead + c.Left["purged"] + c.Left["evicted"] - timedOut - s.Dropped
	s.Waiting = c.Waiting + c.Later + c.Spilled + c.Ready
	sum := s.Completed + s.Expired + s.Dropped + s.Cancelled + s.Dead + s.Waiting
	s.Conserved = c.Conserved() && c.Accepted == int64(s.Admitted) && sum == c.Accepted
}

// WriteJSON writes the summary as one object on one line.
func (s *Summary) WriteJSON(to io.Writer) error {
	text, err := json.Marshal(s)
	if err != nil {
		return fmt.Errorf("encode summary: %w", err)
	}
	if _, err := fmt.Fprintf(to, "%s\n", text); err != nil {
		return fmt.Errorf("write summary: %w", err)
	}
	return nil
}

func millis(d time.Duration) float64 { return round(d.Seconds()*1e3, 3) }

func round(x float64, digits int) float64 {
	scale := math.Pow10(digits)
	return math.Round(x*scale) / scale
}
