package intake

import (
	"errors"
	"time"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/producer"
)

// Tally is what came of all jobs, in the JSON that the user gets.
type Tally struct {
	// Submitted = Admitted + Duplicates + Σ Refused.
	Submitted  int `json:"submitted"`
	Admitted   int `json:"admitted"`
	Duplicates int `json:"duplicates"`
	// Unreplicated are those of both that too few replicas confirmed in time.
	Unreplicated int                      `json:"unreplicated,omitempty"`
	Bypassed     int                      `json:"bypassed,omitempty"` // Of those that were admitted, beside the limits of their queue and class.
	Refused      map[admission.Reason]int `json:"refused"`
	// BadLines could not be a job.
	BadLines int `json:"bad_lines"`
	// Unanswered may have entered or not.
	Unanswered  int  `json:"unanswered"`
	Interrupted bool `json:"interrupted"`
	// RetryAfterMs is the longest time that a refusal said.
	RetryAfterMs float64 `json:"retry_after_ms"`
	// Verdicts are those of single jobs, if they were asked for.
	Verdicts []Verdict `json:"verdicts,omitempty"`
	// details are what the first refusal of each reason said.
	details map[admission.Reason]string
}

// Verdict is what came of one job.
type Verdict struct {
	Line         int              `json:"line,omitempty"` // zero for a job that came from flags
	Tenant       string           `json:"tenant"`
	ID           string           `json:"id"`
	Decision     string           `json:"decision"`
	Reason       admission.Reason `json:"reason,omitempty"`
	Detail       string           `json:"detail,omitempty"` // what a refusal says
	Scope        admission.Scope  `json:"scope,omitempty"`
	TokensLeft   admission.Tokens `json:"tokens_left,omitempty"`
	Burst        admission.Tokens `json:"burst,omitempty"`
	RetryAfterMs float64          `json:"retry_after_ms,omitempty"`
	// Place is where it went, Position its place in line there.
	Place           admission.Place `json:"place,omitempty"`
	Position        int             `json:"position,omitempty"`
	Bypassed        bool            `json:"bypassed,omitempty"` // It went beside the limits of its queue and class.
	Unreplicated    bool            `json:"unreplicated,omitempty"`
	EstimatedWaitMs *float64        `json:"estimated_wait_ms,omitempty"` // none where nothing was dispatched lately; of a doomed job what it would have been
}

// Refusals returns how many jobs were refused, for whatever reason.
func (t *Tally) Refusals() int {
	n := 0
	for _, count := range t.Refused {
		n += count
	}
	return n
}

// invalid reports whether a result is of a job that could never enter, and so was not sent.
func invalid(r producer.Result) bool { return errors.Is(r.Err, admission.ErrInvalid) }

// answered reports whether a result is a verdict.
func answered(r producer.Result) bool { return r.Err == nil || errors.Is(r.Err, admission.ErrRefused) }

// add counts an answered job.
func (t *Tally) add(v admission.Verdict) {
	t.Submitted++
	if v.Unreplicated {
		t.Unreplicated++
	}
	if v.Bypassed {
		t.Bypassed++
	}
	switch v.Decision {
	case admission.Admitted:
		t.Admitted++
	case admission.Duplicate:
		t.Duplicates++
	case admission.Refused:
		if t.Refused[v.Reason]++; t.Refused[v.Reason] == 1 {
			t.details[v.Reason] = v.Err().Error()
		}
		t.RetryAfterMs = max(t.RetryAfterMs, millis(v.RetryAfter))
	}
}

func verdictOf(line int, job *admission.Job, v admission.Verdict) Verdict {
	out := Verdict{
		Line: line, Tenant: job.Tenant, ID: v.ID, Decision: v.Decision.String(), Reason: v.Reason, Scope: v.Scope, TokensLeft: v.TokensLeft,
		Burst: v.Burst, RetryAfterMs: millis(v.RetryAfter), Place: v.Place, Position: v.Position, Bypassed: v.Bypassed, Unreplicated: v.Unreplicated,
	}
	if v.Decision == admission.Refused {
		out.Detail = v.Err().Error()
	}
	if v.Reason == admission.ReasonDoomed || v.Decision == admission.Admitted && v.EstimatedWait >= 0 {
		out.EstimatedWaitMs = new(millis(v.EstimatedWait))
	}
	return out
}

func millis(d time.Duration) float64 { return float64(d.Microseconds()) / 1e3 }
