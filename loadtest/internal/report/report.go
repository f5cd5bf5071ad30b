package report

import (
	"bytes"
	_ "embed" // The page's template.
	"fmt"
	"html/template"
	"os"
	"path/filepath"
	"slices"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/vg"

	"github.com/headgate/headgate/loadtest/internal/figures"
)

//go:embed page.html
var page string

// Section is one scenario of a report.
type Section struct {
	Scenario string
	// Configuration says in words what was run.
	Configuration string
	// Runs are one a system, Headgate's first.
	Runs []*figures.Figures
	// Rows are the table, with a value for each run.
	Rows []Row
}

// Row is a row of a table.
type Row struct {
	Name   string
	Values []string
}

// Report is what a page says.
type Report struct {
	// When and Machine say when and where it was measured.
	When, Machine string
	Sections      []Section
}

// Index is the name of the page's file.
const Index = "index.html"

// Size of a plot.
const (
	width  = 9 * vg.Inch
	height = 3.2 * vg.Inch
)

// inlined is a plot on the page.
type inlined struct {
	Title, Text string
	SVG         template.HTML
}

type pageSection struct {
	Section

	Systems []string
	Broken  []string
	Figures []inlined
}

// Write writes the report into a directory, which it makes.
func Write(dir string, r Report) error {
	if err := os.MkdirAll(dir, 0o755); err != nil { //nolint:gosec // A report is to be read by others.
		return fmt.Errorf("write report: %w", err)
	}
	var sections []pageSection
	for _, s := range r.Sections {
		section := pageSection{Section: s}
		for _, run := range s.Runs {
			section.Systems = append(section.Systems, run.System)
			for _, broken := range run.Broken {
				section.Broken = append(section.Broken, run.System+": "+broken)
			}
		}
		all, err := draw(s.Runs)
		if err != nil {
			return err
		}
		for _, f := range all {
			svg, err := render(f.plot, filepath.Join(dir, s.Scenario+"-"+f.name+".png"))
			if err != nil {
				return fmt.Errorf("plot %s: %w", f.title, err)
			}
			section.Figures = append(section.Figures, inlined{f.title, f.text, svg})
		}
		sections = append(sections, section)
	}
	parsed, err := template.New(Index).Parse(page)
	if err != nil {
		return fmt.Errorf("read the page's template: %w", err)
	}
	var text bytes.Buffer
	err = parsed.Execute(&text, struct {
		Report

		Sections []pageSection
	}{r, sections})
	if err != nil {
		return fmt.Errorf("write the page: %w", err)
	}
	if err := os.WriteFile(filepath.Join(dir, Index), text.Bytes(), 0o644); err != nil { //nolint:gosec // As above.
		return fmt.Errorf("write report: %w", err)
	}
	return nil
}

// draw makes the plots of a scenario.
func draw(runs []*figures.Figures) ([]figure, error) {
	var all []figure
	shared := []func([]*figures.Figures) (figure, error){allWaits, depth, shares}
	if runs[0].Series.BystanderP50 != nil {
		shared = slices.Insert(shared, 0, bystanderWaits)
	}
	for _, plot := range shared {
		f, err := plot(runs)
		if err != nil {
			return nil, err
		}
		all = append(all, f)
	}
	for _, run := range runs {
		own, err := drawOwn(run)
		if err != nil {
			return nil, err
		}
		all = append(all, own...)
	}
	return all, nil
}

// begun is what lines of service count.
const begun = "jobs begun a second"

// drawOwn makes the plots of one system.
func drawOwn(run *figures.Figures) ([]figure, error) {
	classes, err := lines(run, "classes", "service of classes",
		"Jobs begun a second. While all classes wait, service follows their weights.", begun, run.Series.Classes)
	if err != nil {
		return nil, err
	}
	tenants, err := lines(run, "tenants", "service of the heaviest tenants",
		"Jobs begun a second, of those that ask for most.", begun, run.Series.Tenants)
	if err != nil {
		return nil, err
	}
	all := []figure{classes, tenants}
	if len(run.Series.Overload) > 0 {
		goodput, err := lines(run, "goodput", "what arrives, is let in, and starts in time",
			"Jobs a second. What is let in is what the limits of the moment and the level of the queue leave of what arrives.", "jobs a second", run.Series.Overload)
		if err != nil {
			return nil, err
		}
		waits, err := classWaits(run)
		if err != nil {
			return nil, err
		}
		all = append(all, goodput, waits)
	}
	for i := range run.Series.Bounds {
		f, err := bound(run, &run.Series.Bounds[i])
		if err != nil {
			return nil, err
		}
		all = append(all, f)
	}
	if len(run.Series.Breakers) > 0 {
		f, err := breakers(run)
		if err != nil {
			return nil, err
		}
		all = append(all, f)
	}
	return all, nil
}

// render writes a plot as a PNG and returns it as SVG for a page.
func render(p *plot.Plot, file string) (template.HTML, error) {
	if err := p.Save(width, height, file); err != nil {
		return "", err
	}
	to, err := p.WriterTo(width, height, "svg")
	if err != nil {
		return "", err
	}
	var text bytes.Buffer
	if _, err := to.WriteTo(&text); err != nil {
		return "", err
	}
	// What is before the element belongs to a file of its own.
	svg := text.Bytes()[bytes.Index(text.Bytes(), []byte("<svg")):]
	return template.HTML(svg), nil //nolint:gosec // Of gonum/plot, which escapes text.
}
