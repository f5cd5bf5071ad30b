package logs

import (
	"bytes"
	"encoding/json"
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/rs/zerolog"
	"pgregory.net/rapid"
)

// lines returns the messages of a log.
func lines(t *testing.T, log string) (all []string) {
	t.Helper()
	for line := range strings.Lines(log) {
		var entry struct{ Component, Level, Message string }
		if err := json.Unmarshal([]byte(line), &entry); err != nil {
			t.Fatalf("%v in %s", err, line)
		}
		all = append(all, entry.Component+" "+entry.Level)
	}
	return all
}

// sayAll writes a line of each level with each logger.
func sayAll(loggers map[Component]zerolog.Logger) {
	for _, component := range Components {
		logger := loggers[component]
		for _, level := range []zerolog.Level{zerolog.DebugLevel, zerolog.InfoLevel, zerolog.WarnLevel, zerolog.ErrorLevel} {
			logger.WithLevel(level).Msg("")
		}
	}
}

func TestEachComponentHasItsLevelAlsoAfterAChange(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(r *rapid.T) {
		draw := func(name string) Config {
			config := Config{Level: rapid.SampledFrom(Levels).Draw(r, name), Own: map[Component]string{}}
			for _, component := range Components {
				config.Own[component] = rapid.SampledFrom(append([]string{""}, Levels...)).Draw(r, name+string(component))
			}
			return config
		}
		first, second := draw("first"), draw("second")
		var out bytes.Buffer
		l := New(&out, first)
		loggers := map[Component]zerolog.Logger{}
		for _, component := range Components {
			loggers[component] = l.Logger(component).With().Str("more", "context").Logger() // As services derive theirs.
		}
		for _, config := range []Config{first, second} {
			l.Apply(config)
			out.Reset()
			sayAll(loggers)
			var want []string
			for _, component := range Components {
				level := config.Own[component]
				if level == "" {
					level = config.Level
				}
				said := []string{"error", "warn", "info", "debug"}[:slices.Index(Levels, level)]
				slices.Reverse(said)
				for _, level := range said {
					want = append(want, string(component)+" "+level)
				}
			}
			slices.SortStableFunc(want, func(a, b string) int {
				component := func(s string) int {
					name, _, _ := strings.Cut(s, " ")
					return slices.Index(Components[:], Component(name))
				}
				return component(a) - component(b)
			})
			if got := lines(t, out.String()); !slices.Equal(got, want) {
				r.Fatalf("%+v: got %v, want %v", config, got, want)
			}
		}
	})
}

func TestAHotComponentIsSampledAndItsErrorsAreNot(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	l := New(&out, Config{Level: "debug", Burst: 5, Thereafter: 10})
	hot, calm := l.Logger(Worker), l.Logger(Breaker)
	const said = 1000
	for range said {
		hot.Warn().Msg("")
		hot.Error().Msg("")
	}
	calm.Warn().Msg("")
	counts := map[string]int{}
	for _, line := range lines(t, out.String()) {
		counts[line]++
	}
	// The loop may run into a second second, which has a burst of its own.
	if got := counts["worker warn"]; got < 100 || got > 200 {
		t.Errorf("%d warnings of %d", got, said)
	}
	if counts["worker error"] != said || counts["breaker warn"] != 1 {
		t.Errorf("got %v", counts)
	}
	if got := int(l.Dropped()); got != said-counts["worker warn"] {
		t.Errorf("%d lines are said to be dropped, of %d there are %d", got, said, counts["worker warn"])
	}
	l.Apply(Config{Level: "debug"})
	out.Reset()
	for range said {
		hot.Warn().Msg("")
	}
	if got := len(lines(t, out.String())); got != said {
		t.Errorf("%d lines without sampling, want %d", got, said)
	}
}

func TestALineThatIsOffAllocatesNothing(t *testing.T) { // Alone: others' allocations would count.
	logger := New(io.Discard, Config{Level: "info"}).Logger(Worker)
	said := func() { logger.Debug().Str("job", "a").Int("attempt", 1).Msg("job ended") }
	if got := testing.AllocsPerRun(100, said); got != 0 {
		t.Errorf("%v allocations", got)
	}
}

func TestConsole(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	logger := New(&out, Config{Format: FormatConsole}).Logger(Worker)
	logger.Info().Str("queue", "mail").Msg("worker starts")
	if got := out.String(); !strings.Contains(got, "INF worker starts component=worker queue=mail") {
		t.Errorf("got %q", got)
	}
}

func BenchmarkOff(b *testing.B) {
	logger := New(io.Discard, Config{Level: "info", Burst: 1000, Thereafter: 100}).Logger(Worker)
	b.ReportAllocs()
	for b.Loop() {
		logger.Debug().Str("job", "a").Msg("job ended")
	}
}
