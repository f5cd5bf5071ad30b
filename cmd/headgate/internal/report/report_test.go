package report

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/cmd/headgate/internal/ledger"
	"github.com/headgate/headgate/internal/fairness"
	"github.com/headgate/headgate/store"
)

// balanced is a run whose books balance.
func balanced() Run {
	return Run{
		Rows: 12, BadRows: 1, Wall: 2 * time.Second,
		Figures: ledger.Figures{
			Progress: ledger.Progress{Asked: 11, Admitted: 9, Duplicates: 1, Refused: 1, Started: 6, Failures: 2},
			Refused:  map[admission.Reason]int{admission.ReasonLimited: 1},
			Classes:  map[admission.Priority]ledger.Group{admission.High: {Dispatched: 6, Wait: ledger.Waits{P99: 1500 * time.Microsecond}}},
			Breakers: []ledger.Breaker{{Downstream: "mail", Opened: 2, HeldBack: 3}},
			Fairness: ledger.Fairness{Evenness: fairness.Evenness{Jain: 1}},
		},
		Census: store.Census{
			Accepted: 9, Waiting: 1, Later: 1, Ready: 1, Dead: 3, Live: 6,
			Left: map[string]int64{"completed": 2, "cancelled": 1}, Died: map[string]int64{"expired": 1, "max_attempts": 1, "dropped": 1},
		},
		States: map[string]string{"mail": "open"},
	}
}

func TestASummaryAddsUp(t *testing.T) {
	t.Parallel()
	s := NewSummary(balanced())
	if s.Submitted != s.Admitted+s.Duplicates+s.Refused[admission.ReasonLimited] || s.Rows != s.Submitted+s.BadRows {
		t.Errorf("submitted: %+v", s)
	}
	if sum := s.Completed + s.Expired + s.Dropped + s.Cancelled + s.Dead + s.Waiting; sum != int64(s.Admitted) || !s.Conserved {
		t.Errorf("admitted: %+v", s)
	}
	if s.Expired != 1 || s.Dead != 1 || s.Waiting != 3 || s.JobsPerS != 3 || s.Classes[admission.High].WaitP99Ms != 1.5 {
		t.Errorf("got %+v", s)
	}
	if want := (Breaker{"mail", "open", 2, 3}); len(s.Breakers) != 1 || s.Breakers[0] != want {
		t.Errorf("breakers %+v", s.Breakers)
	}
}

func TestASummaryIsNotConservedIf(t *testing.T) {
	t.Parallel()
	for name, spoil := range map[string]func(*Run){
		"a job is in no place":                  func(r *Run) { r.Census.Waiting-- },
		"a counter lags behind":                 func(r *Run) { r.Census.Left["completed"]-- },
		"Redis accepted more than was told":     func(r *Run) { r.Figures.Progress.Admitted-- },
		"a job left for a reason nobody counts": func(r *Run) { r.Census.Left["completed"]--; r.Census.Left["stolen"] = 1 },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			run := balanced()
			spoil(&run)
			if NewSummary(run).Conserved {
				t.Error("it is")
			}
		})
	}
}

func TestTablesSayWhatTheJSONSays(t *testing.T) {
	t.Parallel()
	s := NewSummary(balanced())
	var out bytes.Buffer
	s.WriteTotals(&out)
	s.WriteClasses(&out, admission.DefaultClasses())
	s.WriteDownstreams(&out)
	s.WriteTenants(&out)
	for _, want := range []string{
		"of which 1 are bad and 0 excluded", "limited: 1", "1.5 ms", "never all had", "no fairness to measure",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("%q is not in\n%s", want, out.String())
		}
	}
}

func TestStrips(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	WriteStrips(&out, []Strip{
		{Label: "asked", Counts: []int{0, 100, 1, 0, 0, 0, 0}, Clipped: true},
		{Label: "served", Counts: []int{0, 8, 4, 1, 0, 0, 0}},
		{Label: "breaker", Marks: []rune("··××···"), Note: "× open"},
	}, 1, time.Second)
	want := "  asked   │ █▁    │ \n" +
		"  served  │ █▄▁   │ \n" +
		"  breaker │··××···│ × open\n" +
		"          └0────5─┘ seconds; a full bar is 8 jobs or more\n"
	if out.String() != want {
		t.Errorf("got\n%swant\n%s", out.String(), want)
	}
	out.Reset()
	WriteStrips(&out, []Strip{{Label: "none", Counts: []int{0, 0}}}, 2, time.Minute)
	if !strings.Contains(out.String(), "times 60.0 s") {
		t.Errorf("got %s", out.String())
	}
}

func TestShort(t *testing.T) {
	t.Parallel()
	for d, want := range map[time.Duration]string{
		0: "0", 123456: "0.12 ms", 12345678: "12.3 ms", 345 * time.Millisecond: "345 ms", 1234 * time.Millisecond: "1.2 s",
		125 * time.Second: "2m5s", -time.Second: "-1.0 s",
	} {
		if got := Short(d); got != want {
			t.Errorf("%d is %q, want %q", d, got, want)
		}
	}
}

func TestProgressIsALineWhereThereIsNoTerminal(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	p := NewPainter(&out)
	p.Paint("a picture", "first")
	p.Paint("a picture", "too soon")
	p.Done(true)
	if out.String() != "first\n" {
		t.Errorf("got %q", out.String())
	}
	p.every = 0
	for _, line := range []string{"first", "second", "second"} {
		p.Paint("a picture", line)
	}
	if out.String() != "first\nsecond\n" {
		t.Errorf("got %q, with lines that say nothing new", out.String())
	}
	if bar := Bar(0.5, 4); bar != "██░░" || Bar(2, 2) != "██" || Bar(-1, 2) != "░░" {
		t.Errorf("half a bar is %q", bar)
	}
}
