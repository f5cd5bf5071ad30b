package report

import (
	"fmt"
	"image/color"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"

	"github.com/headgate/headgate/breaker"
	"github.com/headgate/headgate/loadtest/internal/figures"
)

// shownBreakers is how many breakers a plot shows.
const shownBreakers = 12

// stateColours say how a breaker is.
var stateColours = map[string]color.Color{
	breaker.Closed.String(): green, breaker.HalfOpen.String(): orange, breaker.Open.String(): red,
}

// interesting returns the breakers that were not always closed, and some that were, up to shownBreakers.
func interesting(all []figures.BreakerLine) []figures.BreakerLine {
	var moved, calm []figures.BreakerLine
	for _, one := range all {
		if len(one.State) > 1 {
			moved = append(moved, one)
		} else {
			calm = append(calm, one)
		}
	}
	moved = append(moved, calm...)
	return moved[:min(len(moved), shownBreakers)]
}

func breakers(run *figures.Figures) (figure, error) {
	p := newPlot("s", "")
	var ticks plot.ConstantTicks
	shown := map[string]bool{}
	for row, one := range interesting(run.Series.Breakers) {
		y := -float64(row)
		ticks = append(ticks, plot.Tick{Value: y, Label: one.Downstream})
		for i, at := range one.At {
			until := run.WallS
			if i+1 < len(one.At) {
				until = one.At[i+1]
			}
			l, err := plotter.NewLine(plotter.XYs{{X: at, Y: y}, {X: until, Y: y}})
			if err != nil {
				return figure{}, fmt.Errorf("plot breakers: %w", err)
			}
			l.Color, l.Width = stateColours[one.State[i]], vg.Points(8)
			p.Add(l)
			if !shown[one.State[i]] {
				shown[one.State[i]] = true
				p.Legend.Add(one.State[i], l)
			}
		}
	}
	p.Y.Tick.Marker = ticks
	p.Y.Min, p.Y.Max = p.Y.Min-1, p.Y.Max+2.5
	p.X.Min, p.X.Max = 0, run.WallS
	return figure{run.System + "-breakers", run.System + ": breaker states", "The state of each downstream's breaker over time, of those " +
		"that opened first.", p}, nil
}
