package codec

import (
	"testing"
	"time"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/store"
)

// letIn is what admit says of a job that is in.
func letIn(where byte, numbers ...float64) string {
	return string(appendDoubles([]byte{where}, numbers...))
}

// TestWhereAJobIsIsTold: by each place, with what is left where a limit is on its way.
func TestWhereAJobIsIsTold(t *testing.T) {
	t.Parallel()
	job := admission.NewJob("acme", "mail", "send", nil)
	for line, want := range map[string]admission.Verdict{
		letIn(1, 0, 0, 5, 9):          {Place: admission.PlaceReady, TokensLeft: 5, Burst: 9},
		letIn(2, 0, 5000, 0, 0):       {Place: admission.PlaceLater, EstimatedWait: 5 * time.Millisecond},
		letIn(3, 7, -1, 1, 2):         {Place: admission.PlaceSpilled, Position: 7, EstimatedWait: -1, TokensLeft: 1, Burst: 2},
		letIn(4, 3, 1500000.75, 0, 1): {Place: admission.PlaceWaiting, Position: 3, EstimatedWait: 1500 * time.Millisecond, Burst: 1},
	} {
		want.Decision = admission.Admitted
		if v, err := ParseVerdict(line, &job); err != nil || v != want {
			t.Errorf("%q\n got %+v, %v\nwant %+v", line, v, err, want)
		}
	}
	for _, line := range []string{letIn(5, 0, 0, 0, 0), letIn(1, 0, 0, 0), letIn(0, 0, 0, 0, 0)} {
		if v, err := ParseVerdict(line, &job); err == nil {
			t.Errorf("%q is read as %+v", line, v)
		}
	}
}

// TestAWayBesideIsTold: of who went it, with what else is said of the job, and of who is refused by what may go it.
func TestAWayBesideIsTold(t *testing.T) {
	t.Parallel()
	job := admission.NewJob("acme", "mail", "send", nil)
	for line, want := range map[string]admission.Verdict{
		"bypassed " + letIn(1, 0, 0, -20, 100):              {Decision: admission.Admitted, Place: admission.PlaceReady, TokensLeft: -20, Burst: 100, Bypassed: true},
		"dropped 2 bypassed " + letIn(2, 0, 5000, 1, 9):     {Decision: admission.Admitted, Place: admission.PlaceLater, EstimatedWait: 5 * time.Millisecond, TokensLeft: 1, Burst: 9, Bypassed: true, Dropped: 2},
		"bypass limited 1 2500000 4000 10000000":            {Reason: admission.ReasonLimited, Scope: "acme", Detail: store.ShareDetail(""), TokensLeft: 2, Burst: 10, RetryAfter: 4 * time.Millisecond},
		"bypass limited 1 0 4000 5000000 500000 1795834389": {Reason: admission.ReasonLimited, Scope: "acme", Detail: store.ShareDetail("scaled to 0.5 until 1970-01-01T00:29:55Z"), Burst: 5, RetryAfter: 4 * time.Millisecond},
		"bypass costly 1 10000000":                          {Reason: admission.ReasonTooCostly, Scope: "acme", Detail: store.ShareDetail(""), Burst: 10},
	} {
		if v, err := ParseVerdict(line, &job); err != nil || v != want {
			t.Errorf("%s\n got %+v, %v\nwant %+v", line, v, err, want)
		}
	}
}

// TestWhatIsLeftIsRoundedDown, of a debt too.
func TestWhatIsLeftIsRoundedDown(t *testing.T) {
	t.Parallel()
	job := admission.NewJob("acme", "mail", "send", nil)
	for line, want := range map[string]admission.Tokens{
		"limited 1 6500000 1 7000000": 6, "limited 1 -6500000 1 7000000": -7, "limited 1 -6000000 1 7000000": -6, "limited 1 -1 1 7000000": -1,
	} {
		if v, err := ParseVerdict(line, &job); err != nil || v.TokensLeft != want {
			t.Errorf("%s: %d left, want %d; %v", line, v.TokensLeft, want, err)
		}
	}
}
