package report

import (
	"fmt"
	"image/color"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"

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

func waits(runs []*figures.Figures) (figure, error) {
	p := newPlot("intended arrival, s", "Enqueue to handler, ms")
	p.Y.Scale, p.Y.Tick.Marker = plot.LogScale{}, plot.LogTicks{Prec: -1}
	p.Y.Min, p.Y.Max = 0.1, 1
	for i, run := range runs {
		s := &run.Series
		for k, one := range []struct {
			name   string
			values []float64
		}{{"p99", s.P99}, {"p50", s.P50}} {
			points := overTime(one.values, s.Slice)
			for j := range points {
				points[j].Y = max(points[j].Y, least)
			}
			if err := line(p, run.System+" "+one.name, points, colourOf(i), k == 1); err != nil {
				return figure{}, err
			}
		}
	}
	return figure{"wait", "Enqueue to handler over time", "Each job's wait counts from the time at which it was to arrive, also while " +
		"the system or the generator was stalled. A logarithmic scale.", p}, nil
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
	return figure{"share", "Share of tenants", "How much of everything the heaviest tenants asked for, and how much of everything " +
		"that completed was theirs. The diagonal is equal shares.", p}, nil
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

func lines(run *figures.Figures, name, title, text string, all []figures.Line) (figure, error) {
	p := newPlot("s", "jobs begun a second")
	for i, one := range all {
		points := overTime(one.Values, run.Series.Slice)
		for j := range points {
			points[j].Y /= run.Series.Slice
		}
		if err := line(p, one.Name, points, colourOf(i), false); err != nil {
			return figure{}, err
		}
	}
	return figure{run.System + "-" + name, run.System + ": " + title, text, p}, nil
}

func bound(run *figures.Figures) (figure, error) {
	p := newPlot("s", "jobs")
	s, global := &run.Series, run.Bounds[0]
	limit := plotter.XYs{{X: 0, Y: float64(global.Burst)}, {X: run.DurationS, Y: float64(global.Burst) + global.Rate*run.DurationS}}
	last := min(len(s.Asked), int(run.DurationS/s.Slice)+1) // Nothing arrives later.
	for _, one := range []struct {
		name   string
		points plotter.XYs
		colour color.Color
		dashed bool
	}{
		{"burst + rate x t", limit, black, true},
		{"asked for", overTime(s.Asked[:last], s.Slice), grey, false},
		{"admitted", overTime(s.Admitted[:last], s.Slice), blue, false},
	} {
		if err := line(p, one.name, one.points, one.colour, one.dashed); err != nil {
			return figure{}, err
		}
	}
	return figure{run.System + "-bound", run.System + ": admitted against the global bound", fmt.Sprintf(
		"What the global limit of %.0f a second with a burst of %d may have admitted since the start. Of the burst %.0f %% "+
			"were in use at most, over every window.", global.Rate, global.Burst, 100*global.Used), p}, nil
}
