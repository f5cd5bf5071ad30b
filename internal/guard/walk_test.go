package guard

import (
	"bytes"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"
	"github.com/rs/zerolog"
)

// fixed is a sampler with one answer.
type fixed struct {
	mu     sync.Mutex
	sample Sample
	err    error
	asked  int
}

func (f *fixed) Sample(time.Time) (Sample, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.asked++
	return f.sample, f.err
}

func (f *fixed) fail(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.err = err
}

// TestWalk plays testdata/walk.txt: what is limited, samples at times, and what the log says and others are told.
func TestWalk(t *testing.T) {
	t.Parallel()
	var g *Guard
	var said bytes.Buffer
	begin := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	datadriven.RunTest(t, "testdata/walk.txt", func(t *testing.T, d *datadriven.TestData) string {
		t.Helper()
		said.Reset()
		at, megabytes, calls, n := 0, 0.0, 0, 1
		number := func(name string, to any) { d.MaybeScanArgs(t, name, to) }
		number("at", &at)
		now := begin.Add(time.Duration(at) * time.Second)
		switch d.Cmd {
		case "limits":
			var config Config
			number("memory", &megabytes)
			number("cpu", &config.MaxCPU)
			number("warn", &config.WarnAt)
			number("requests", &config.MaxRequestsPerMinute)
			number("calls", &calls)
			config.MaxMemory = int64(megabytes) << 20
			parts := Parts{
				Logger: zerolog.New(&said), Sampler: &fixed{}, Changed: func(c Change) { fmt.Fprintf(&said, "told: %s %s\n", c.Kind, c.To) },
				Throttled: func(on bool) { fmt.Fprintln(&said, "told: throttled", on) },
			}
			if calls > 0 {
				parts.Bounds = func() []Reading { return []Reading{{Concurrent, float64(calls), 100, true}} }
			}
			var err error
			if g, err = New(config, parts); err != nil {
				return err.Error()
			}
			g.free = func() { fmt.Fprintln(&said, "garbage is given back") }
			g.summary = begin.Add(summaryEvery)
		case "sample":
			var s Sample
			number("memory", &megabytes)
			number("cpu", &s.CPU)
			s.Memory = int64(megabytes * (1 << 20))
			g.look(now, s)
		case "begin":
			number("n", &n)
			begun := 0
			for range n {
				if !g.throttled.Load() && g.tryCountAt(now) {
					begun++
				}
				select {
				case <-g.crossed:
					g.apply([]Reading{g.requests(now)})
				default:
				}
			}
			fmt.Fprintf(&said, "%d of %d begin\n", begun, n)
		}
		return strings.ReplaceAll(said.String(), `"level":`, "")
	})
}
