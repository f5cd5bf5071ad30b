package replay

import (
	"bytes"
	"encoding/json"
	"io"
	"math"
	"strings"
	"testing"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/cmd/headgate/internal/trueup"
)

// told runs the command and returns what it tells.
func told(t *testing.T, stdin string, args ...string) (r costReport, err error) {
	t.Helper()
	var out bytes.Buffer
	c := newCosts()
	c.SetArgs(append(args, "--json"))
	c.SetIn(strings.NewReader(stdin))
	c.SetOut(&out)
	c.SetErr(io.Discard)
	if err := c.ExecuteContext(t.Context()); err != nil {
		return r, err
	}
	if err := json.Unmarshal(out.Bytes(), &r); err != nil {
		t.Fatal(err)
	}
	return r, nil
}

// arm returns one of a report's.
func (r *costReport) arm(t *testing.T, by string, trueUp bool) *trueup.Arm {
	t.Helper()
	for i := range r.Arms {
		if r.Arms[i].Estimate == by && r.Arms[i].TrueUp == trueUp {
			return &r.Arms[i]
		}
	}
	t.Fatalf("no arm %s, %t", by, trueUp)
	return nil
}

// TestFiveCallsOfAHundredAndThirtyThree of a limit of 100 that reserve ten each: all pass where what was reserved is the cost, and one where it tells
// its cost before the next comes (BerriAI/litellm#18730).
func TestFiveCallsOfAHundredAndThirtyThree(t *testing.T) {
	t.Parallel()
	calls := "TIMESTAMP,ContextTokens,GeneratedTokens\n" + strings.Repeat("2023-11-16 18:15:46.6805900,10,123\n", 5)
	r, err := told(t, calls, "-", "--tokens-per-minute", "100", "--token-time", "0s", "--max-output", "200")
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []trueup.Arm{
		{Estimate: trueup.ByContext, Admitted: 5, Short: 5, Reserved: 50, Used: 665, OfLimit: 6.65, Excess: 565, Debts: 5.65},
		{Estimate: trueup.ByContext, TrueUp: true, Admitted: 1, Refused: 4, Short: 1, Reserved: 10, Used: 133, OfLimit: 1.33, Excess: 33, Debts: 0.33},
		{Estimate: trueup.ByMost, Refused: 5, TooCostly: 5},
		{Estimate: trueup.ByLearned, TrueUp: true, Admitted: 1, Refused: 4, Short: 1, Reserved: 100, Used: 133, OfLimit: 1.33, Excess: 33, Debts: 0.33},
	} {
		got := *r.arm(t, want.Estimate, want.TrueUp)
		for _, figure := range []*float64{&got.OfLimit, &got.Excess, &got.Debts} {
			*figure = math.Round(1e6**figure) / 1e6
		}
		if got != want {
			t.Errorf("got  %+v\nwant %+v", got, want)
		}
	}
	if r.Calls != 5 || r.Tokens != 665 || r.Burst != 100 {
		t.Errorf("%+v", r)
	}
}

// TestATraceOfAModel is one of six hundred calls, drawn with the sizes and the waves of such traces: prompts as estimates let through more than the
// limit, trued up next to nothing more, and the learned estimates nothing, but more by a quarter at least than where they stand.
func TestATraceOfAModel(t *testing.T) {
	t.Parallel()
	r, err := told(t, "", "testdata/calls.csv", "--tokens-per-minute", "150000", "--burst", "50000")
	if err != nil {
		t.Fatal(err)
	}
	stands, trued := r.arm(t, trueup.ByContext, false), r.arm(t, trueup.ByContext, true)
	if stands.Debts < 0.2 || trued.Debts > stands.Debts/4 {
		t.Errorf("the prompt: %.2f bursts more than the limit, trued up %.2f", stands.Debts, trued.Debts)
	}
	stands, trued = r.arm(t, trueup.ByLearned, false), r.arm(t, trueup.ByLearned, true)
	if stands.Excess > 0 || trued.Excess > 0 || trued.Used < stands.Used*5/4 || trued.TooCostly > 0 {
		t.Errorf("learned: %+v\ntrued up: %+v", *stands, *trued)
	}
	if sum := trued.Admitted + trued.Refused; sum != r.Calls {
		t.Errorf("%d calls of %d", sum, r.Calls)
	}
}

// TestACostThatIsToldTooLateIsCounted: of a call that takes longer than a minute.
func TestACostThatIsToldTooLateIsCounted(t *testing.T) {
	t.Parallel()
	r, err := told(t, "TIMESTAMP,ContextTokens,GeneratedTokens\n2024-05-10 00:00:00.009930+00:00,1,61\n2024-05-10 00:00:01+00:00,1,59\n", "-", "--token-time", "1s", "--burst", "1000")
	if err != nil {
		t.Fatal(err)
	}
	if got := r.arm(t, trueup.ByContext, true); got.Late != 1 || got.Admitted != 2 {
		t.Errorf("%+v", got)
	}
}

// TestBadInputIsOneClearError, each naming what may be given.
func TestBadInputIsOneClearError(t *testing.T) {
	t.Parallel()
	for args, want := range map[string]string{
		"--burst -1":          "--burst",
		"--max-output 0":      "--max-output",
		"--token-time -1s":    "--token-time",
		"--limit-rows -1":     "--limit-rows",
		"--column-tenant who": "--column-tenant",
	} {
		if _, err := told(t, "TIMESTAMP,ContextTokens,GeneratedTokens\n", append([]string{"-"}, strings.Fields(args)...)...); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", args, err)
		}
	}
	r, err := told(t, "TIMESTAMP,ContextTokens,GeneratedTokens\nnever,1,1\n2024-05-10 00:00:01,1,-1\n2024-05-10 00:00:01,1,1.5\n", "-")
	if err != nil || r.Bad != 2 || r.Tokens != 3 || r.Arms[0].Used != admission.Tokens(3) {
		t.Errorf("%+v, %v", r, err)
	}
}
