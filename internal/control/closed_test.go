package control_test

import (
	"cmp"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"

	"github.com/headgate/headgate/internal/control"
)

const (
	interval = 5 * time.Second
	most     = 400
	// settled is within how many ticks a limit is where it belongs, after any start and any change of the downstream; phase is how
	// long each phase of a course lasts. AIMD takes longer, and so does gradient where there is ten times as much to find.
	settled, phase, settledLate = 10, 100, 50
)

// ticker is a controller, or what takes its place.
type ticker interface {
	Tick(in int, s control.Sample) control.Step
}

// mutant is a controller that does not look.
type mutant func(in int) int

func (m mutant) Tick(in int, _ control.Sample) control.Step {
	return control.Step{Limit: m(in), Before: in}
}

// course runs a controller over a plant whose best limit moves four times, 40, 20, 80, 160, 80, and returns the errors of those phases in which too
// little was done or calls waited for too long.
func course(c ticker, p *plant, start int, see func(tick, limit int, step control.Step)) error {
	var bad []error
	p.capacity, p.base = most, 100*time.Millisecond
	for i, change := range []func(){func() {}, func() { p.capacity /= 2 }, func() { p.capacity, p.base = most, 200*time.Millisecond }, func() { p.capacity *= 2 }, func() { p.capacity /= 2 }} {
		change()
		done, waits := 0.0, []float64{}
		for tick := range phase {
			step := c.Tick(start, p.tick(start))
			start = step.Limit
			if see != nil {
				see(i*phase+tick, start, step)
			}
			if tick >= settled {
				done += p.goodput(start) / p.capacity / (phase - settled)
				waits = append(waits, float64(p.runTime(start))/float64(p.base))
			}
		}
		slices.Sort(waits)
		if wait := waits[len(waits)*95/100]; done < 0.9 || wait > 1.25 {
			bad = append(bad, fmt.Errorf("best limit %.0f: %.2f of the capacity, p95 of run time %.2f of the least", p.best(), done, wait))
		}
	}
	return errors.Join(bad...)
}

func newPlant(noise float64, seed uint64) *plant {
	return &plant{noise: noise, random: rand.New(rand.NewPCG(seed, seed))}
}

func newLoop(t *testing.T, c control.Config, start int) *control.Loop {
	t.Helper()
	c.Interval = interval
	l, err := control.New(c, start)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// courses is how many courses there are of each start and noise: 20, or HEADGATE_COURSES.
func courses(t *testing.T) uint64 {
	t.Helper()
	n, err := strconv.ParseUint(cmp.Or(os.Getenv("HEADGATE_COURSES"), "20"), 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// TestGradientFindsTheBestLimit from whatever start, and again each time it moves: at least 0.9 of the capacity at a p95 of run time of at
// most 1.25 of the least, from 10 ticks on.
func TestGradientFindsTheBestLimit(t *testing.T) {
	t.Parallel()
	for _, noise := range []float64{0, 0.02, 0.05} {
		for _, start := range []int{1, 2, 5, 20, 50, most} {
			for seed := range courses(t) {
				l := newLoop(t, control.Config{Min: 1, Max: most}, start)
				if err := course(l, newPlant(noise, seed), start, nil); err != nil {
					t.Errorf("from %d with noise %g, seed %d: %v", start, noise, seed, err)
				}
			}
		}
	}
}

// TestWhatDoesNotLookFailsTheSameCourse: the course would not pass anything.
func TestWhatDoesNotLookFailsTheSameCourse(t *testing.T) {
	t.Parallel()
	for name, m := range map[string]mutant{
		"always least": func(int) int { return 1 },
		"always most":  func(int) int { return most },
		"frozen":       func(in int) int { return in },
	} {
		for _, start := range []int{1, 2, 5, 20, 50, most} {
			if course(m, newPlant(0.05, 1), start, nil) == nil {
				t.Errorf("%s from %d passes", name, start)
			}
		}
	}
}

// TestAIMDKeepsToARunTime: a downstream that is given no more than 1.5 of its least run time does 0.8 of what it can.
func TestAIMDKeepsToARunTime(t *testing.T) {
	t.Parallel()
	for _, start := range []int{1, 5, 50, most} {
		p := newPlant(0.05, 3)
		p.capacity, p.base = most, 100*time.Millisecond
		l := newLoop(t, control.Config{Controller: control.AIMD, Min: 1, Max: most, MaxRunTime: 150 * time.Millisecond}, start)
		limit, done, worst := start, 0.0, time.Duration(0)
		for tick := range phase {
			limit = l.Tick(limit, p.tick(limit)).Limit
			if tick >= settledLate {
				done += p.goodput(limit) / p.capacity / (phase - settledLate)
				worst = max(worst, p.runTime(limit))
			}
		}
		if done < 0.8 || worst > 170*time.Millisecond {
			t.Errorf("from %d: %.2f of the capacity, calls take up to %s", start, done, worst)
		}
	}
}

// TestPlots draws courses: a line for each of the first ten ticks of a phase and every fifth from there on, # for the limit and | for the best one.
func TestPlots(t *testing.T) {
	t.Parallel()
	datadriven.Walk(t, "testdata/plots", func(t *testing.T, path string) { //nolint:thelper // It is a test.
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string { //nolint:thelper // It is a test.
			var start, percent int
			var seed uint64
			d.ScanArgs(t, "start", &start)
			d.ScanArgs(t, "noise", &percent)
			d.ScanArgs(t, "seed", &seed)
			l, p := newLoop(t, control.Config{Min: 1, Max: most}, start), newPlant(float64(percent)/100, seed)
			var plot strings.Builder
			err := course(l, p, start, func(tick, limit int, step control.Step) {
				if tick%5 != 0 && tick%phase > settled {
					return
				}
				row := []byte(strings.Repeat(" ", 72))
				row[min(len(row)-1, int(p.best())/2)] = '|'
				row[min(len(row)-1, limit/2)] = '#'
				fmt.Fprintf(&plot, "%3d %4d %-9s %s\n", tick, limit, step.Cause, strings.TrimRight(string(row), " "))
			})
			if err != nil {
				fmt.Fprintln(&plot, err)
			}
			return plot.String()
		})
	})
}
