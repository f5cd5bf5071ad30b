package pressure_test

import (
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/internal/pressure"
)

// TestWalks plays testdata/walk. Each line is a command and gives one line:
//
//	score weights wait=0.7 depth=0.3 of wait=0.9 depth=NaN
//	observe 0.9 0.2 ...    one meter, a sample each: the levels
//	new, resume N          another meter, at a level
func TestWalks(t *testing.T) {
	t.Parallel()
	meter := &pressure.Meter{}
	datadriven.RunTest(t, "testdata/walk", func(t *testing.T, d *datadriven.TestData) string {
		t.Helper()
		var out strings.Builder
		for line := range strings.Lines(d.Input) {
			words := strings.Fields(line)
			switch words[0] {
			case "new":
				meter = &pressure.Meter{}
			case "resume":
				meter = pressure.ResumeAt(levelNamed(t, words[1]))
			case "observe":
				for _, word := range words[1:] {
					fmt.Fprintf(&out, "%s %s\n", word, admission.PressureLevel(meter.Observe(numberIn(t, word))))
				}
			default:
				out.WriteString(scored(t, words))
			}
		}
		return out.String()
	})
}

func scored(t *testing.T, words []string) string {
	t.Helper()
	weights, in := pressure.Weights{}, pressure.Inputs{}
	to := map[pressure.Signal]float64(weights)
	for _, word := range words {
		if word == "of" {
			to = in
		}
		if name, value, ok := strings.Cut(word, "="); ok {
			to[pressure.Signal(name)] = numberIn(t, value)
		}
	}
	if err := weights.Validate(); err != nil {
		return err.Error() + "\n"
	}
	r := pressure.Score(in, weights)
	return fmt.Sprintf("%.4f %d %s: %s; neutral %v\n", r.Score, r.Level, admission.PressureLevel(r.Level), r, r.Neutral())
}

func numberIn(t *testing.T, text string) float64 {
	t.Helper()
	x, err := strconv.ParseFloat(text, 64)
	if err != nil {
		t.Fatal(err)
	}
	return x
}
