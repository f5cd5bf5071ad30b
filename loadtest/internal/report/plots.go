package report

import (
	"fmt"
	"image/color"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/text"
	"gonum.org/v1/plot/vg"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/loadtest/internal/figures"
)

// figure is one plot of the page.
type figure struct {
	// Name is part of a file's name, Title is above the plot, Text says how to read it.
	name, title, text string
	plot              *plot.Plot
}

// newPlot returns an empty plot.
func newPlot(x, y string) *plot.Plot {
	p := plot.New()
	p.X.Label.Text, p.Y.Label.Text = x, y
	p.Legend.Top, p.Legend.Left = true, true
	p.Legend.Padding = vg.Points(2)
	for _, style := range []*text.Style{&p.X.Label.TextStyle, &p.Y.Label.TextStyle, &p.X.Tick.Label, &p.Y.Tick.Label, &p.Legend.TextStyle} {
		style.Font.Variant = "Sans"
	}
	p.Add(plotter.NewGrid())
	return p
}

// line adds a line; dashed if it is what others are measured by.
func line(p *plot.Plot, name string, points plotter.XYs, colour color.Color, dashed bool) error {
	if len(points) == 0 {
		return nil // A plot has no lines without points.
	}
	l, err := plotter.NewLine(points)
	if err != nil {
		return fmt.Errorf("plot %s: %w", name, err)
	}
	l.Color, l.Width = colour, vg.Points(1.2)
	if dashed {
		l.Dashes = []vg.Length{vg.Points(4), vg.Points(3)}
	}
	p.Add(l)
	p.Legend.Add(name, l)
	return nil
}

// overTime returns the values of slices as points, those that are not negative. A value stands at the end of its slice.
func overTime(values []float64, slice float64) plotter.XYs {
	var points plotter.XYs
	for i, value := range values {
		if value >= 0 {
			points = append(points, plotter.XY{X: float64(i+1) * slice, Y: value})
		}
	}
	return points
}

// least is the smallest wait that a logarithmic axis shows, in milliseconds.
const least = 0.01

// percentiles are two lines of a run.
type percentiles func(s *figures.Series) (p50, p99 []float64)

func everybody(s *figures.Series) (p50, p99 []float64)  { return s.P50, s.P99 }
func bystanders(s *figures.Series) (p50, p99 []float64) { return s.BystanderP50, s.BystanderP99 }

// legendRoom is how much higher than its lines a logarithmic plot is, for the legend.
const legendRoom = 10

func waits(runs []*figures.Figures, of percentiles) (*plot.Plot, error) {
	p := newPlot("intended arrival, s", "Enqueue to handler, ms")
	for i, run := range runs {
		p50, p99 := of(&run.Series)
		for k, values := range [][]float64{p99, p50} {
			if err := line(p, run.System+[]string{" p99", " p50"}[k], shownWaits(values, run.Series.Slice), colourOf(i), k == 1); err != nil {
				return nil, err
			}
		}
	}
	logarithmic(p)
	return p, nil
}

// shownWaits returns waits as points of a logarithmic plot.
func shownWaits(values []float64, slice float64) plotter.XYs {
	points := overTime(values, slice)
	for j := range points {
		points[j].Y = max(points[j].Y, least)
	}
	return points
}

// logarithmic gives a plot that has its lines a logarithmic axis, with 1 on it.
func logarithmic(p *plot.Plot) {
	p.Y.Min, p.Y.Max = min(p.Y.Min, 1), legendRoom*max(p.Y.Max, 1)
	p.Y.Scale, p.Y.Tick.Marker = plot.LogScale{}, plot.LogTicks{Prec: -1}
}

func allWaits(runs []*figures.Figures) (figure, error) {
	p, err := waits(runs, everybody)
	return figure{"wait", "Enqueue to handler over time", "Each job's wait counts from the time at which it was to arrive, also while " +
		"the system or the generator was stalled. A logarithmic scale.", p}, err
}

func bystanderWaits(runs []*figures.Figures) (figure, error) {
	p, err := waits(runs, bystanders)
	return figure{"bystanders", "Enqueue to handler over time, of bystanders", "Of jobs that have no part in what the scenario is about: " +
		"those of the other tenants, or of downstreams that stay well.", p}, err
}

func depth(runs []*figures.Figures) (figure, error) {
	p := newPlot("s", "jobs in and not begun")
	for i, run := range runs {
		if err := line(p, run.System, overTime(run.Series.Depth, run.Series.Slice), colourOf(i), false); err != nil {
			return figure{}, err
		}
	}
	return figure{"depth", "Depth over time", "Jobs that were admitted and that no handler had begun.", p}, nil
}

func shares(runs []*figures.Figures) (figure, error) {
	p := newPlot("tenants, those that ask for most first, % of all", "part of all jobs so far, %")
	cumulated := func(all []figures.ShareOf, part func(figures.ShareOf) float64) plotter.XYs {
		points := plotter.XYs{{}}
		sum := 0.0
		for i, share := range all {
			sum += 100 * part(share)
			points = append(points, plotter.XY{X: 100 * float64(i+1) / float64(len(all)), Y: sum})
		}
		return thin(points)
	}
	for i, run := range runs {
		if i == 0 {
			points := cumulated(run.Series.Shares, func(s figures.ShareOf) float64 { return s.Asked })
			if err := line(p, "asked for", points, black, true); err != nil {
				return figure{}, err
			}
		}
		points := cumulated(run.Series.Shares, func(s figures.ShareOf) float64 { return s.Completed })
		if err := line(p, run.System+", completed", points, colourOf(i), false); err != nil {
			return figure{}, err
		}
	}
	p.Legend.Top = false
	p.Legend.Left = false
	return figure{"share", "Share of tenants", "How much of everything the heaviest tenants asked for, and how much of what " +
		"completed while jobs arrived was theirs. The diagonal is equal shares.", p}, nil
}

// mostPoints bounds the points of a line, so that a page of thousands of tenants stays small.
const mostPoints = 200

func thin(points plotter.XYs) plotter.XYs {
	if len(points) <= mostPoints {
		return points
	}
	thinned := make(plotter.XYs, 0, mostPoints+1)
	for i := range mostPoints {
		thinned = append(thinned, points[i*(len(points)-1)/mostPoints])
	}
	return append(thinned, points[len(points)-1])
}

func lines(run *figures.Figures, name, title, words, y string, all []figures.Line) (figure, error) {
	p := newPlot("s", y)
	for i, one := range all {
		points := overTime(one.Values, run.Series.Slice)
		for j := range points {
			points[j].Y /= run.Series.Slice
		}
		if err := line(p, one.Name, points, colourOf(i), false); err != nil {
			return figure{}, err
		}
	}
	return figure{run.System + "-" + name, run.System + ": " + title, words, p}, nil
}

func bound(run *figures.Figures, b *figures.BoundLine) (figure, error) {
	p := newPlot("s", "cost in tokens")
	slice := run.Series.Slice
	limit := plotter.XYs{{X: 0, Y: float64(b.Burst)}, {X: run.DurationS, Y: float64(b.Burst) + b.Rate*run.DurationS}}
	last := min(len(b.Asked), int(run.DurationS/slice)+1) // Nothing arrives later.
	for _, one := range []struct {
		name   string
		points plotter.XYs
		colour color.Color
		dashed bool
	}{
		{"burst + rate x t", limit, black, true},
		{"asked for", overTime(b.Asked[:last], slice), grey, false},
		{"admitted", overTime(b.Admitted[:last], slice), blue, false},
	} {
		if err := line(p, one.name, one.points, one.colour, one.dashed); err != nil {
			return figure{}, err
		}
	}
	name := "tenant"
	if b.Scope == admission.Global {
		name = "global"
	}
	return figure{run.System + "-bound-" + name, fmt.Sprintf("%s: admitted against the bound of %s", run.System, b.Scope), fmt.Sprintf(
		"What a limit of %.4g a second with a burst of %d may have admitted since the start. Over every window, %.0f %% of the "+
			"burst was in use at most.", b.Rate, b.Burst, 100*b.Used), p}, nil
}

// classWaits is how long jobs of each class wait.
func classWaits(run *figures.Figures) (figure, error) {
	p := newPlot("intended arrival, s", "Enqueue to handler, p99, ms")
	for i, one := range run.Series.ClassWaits {
		if err := line(p, one.Name, shownWaits(one.Values, run.Series.Slice), colourOf(i), false); err != nil {
			return figure{}, err
		}
	}
	logarithmic(p)
	return figure{run.System + "-class-waits", run.System + ": waits of classes", "The 99th percentile of the jobs of each class that a handler has begun. A logarithmic scale.", p}, nil
}
