package gauge

import (
	"context"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/rs/zerolog"

	"github.com/headgate/headgate/internal/guard"
)

const (
	// sampleEvery is how often the process is measured, summaryEvery how often it is logged what it uses.
	sampleEvery  = 5 * time.Second
	summaryEvery = 5 * time.Minute
)

// StatsConfig is what a Stats works with.
type StatsConfig struct {
	Logger  zerolog.Logger
	Version string
	// Sampler measures the process; nil is the house's own.
	Sampler guard.Sampler
	// Guarded says that a guard logs what the process uses.
	Guarded bool
	// UnderWay returns how many calls are; Connections what there are of those.
	UnderWay    func() int
	Connections func() Connections
}

// Stats is what a server knows of itself. Run it; the other methods may be called from several goroutines.
type Stats struct {
	config StatsConfig
	began  time.Time
	calls  *calls
	mu     struct {
		sync.Mutex

		now, peak guard.Sample
		measured  bool
		states    map[guard.Kind]guard.Change
	}
}

// NewStats returns a Stats that begins now.
func NewStats(config StatsConfig, now time.Time) *Stats {
	if config.Sampler == nil {
		config.Sampler = guard.NewSampler()
	}
	s := &Stats{config: config, began: now, calls: newCalls(now)}
	s.mu.states = map[guard.Kind]guard.Change{}
	return s
}

// Note counts a call.
func (s *Stats) Note(status int, took time.Duration) { s.calls.note(time.Now(), status, took) }

// Changed hears of what the guard found.
func (s *Stats) Changed(c guard.Change) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.states[c.Kind] = c
}

// Run measures the process until ctx ends, and logs every five minutes what it uses. That it cannot be measured is logged once.
func (s *Stats) Run(ctx context.Context) {
	_, err := s.config.Sampler.Sample(time.Now()) // The next one is about the time since.
	if err != nil {
		s.config.Logger.Warn().Err(err).Msg("stats: this process cannot be measured")
		return
	}
	ticks := time.NewTicker(sampleEvery)
	defer ticks.Stop()
	summary := time.Now().Add(summaryEvery)
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-ticks.C:
			s.look(now)
			if !now.Before(summary) {
				summary = now.Add(summaryEvery)
				s.summarize(now)
			}
		}
	}
}

// look measures the process. One that cannot be measured for once is what it was.
func (s *Stats) look(now time.Time) {
	sample, err := s.config.Sampler.Sample(now)
	if err != nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.now, s.mu.measured = sample, true
	s.mu.peak.Memory, s.mu.peak.CPU = max(s.mu.peak.Memory, sample.Memory), max(s.mu.peak.CPU, sample.CPU)
}

// summarize logs what is used and how calls went, unless the guard says what is used.
func (s *Stats) summarize(now time.Time) {
	v := s.View(now)
	if s.config.Guarded || v.Resources.Memory == nil {
		return
	}
	s.config.Logger.Info().Float64("memory_mb", *v.Resources.Memory).Float64("peak_memory_mb", *v.Resources.PeakMemory).
		Float64("cpu_percent", *v.Resources.CPU).Float64("peak_cpu_percent", *v.Resources.PeakCPU).
		Int64("requests_per_minute", v.Resources.PerMinute).Int("concurrent_requests", v.Resources.Concurrent).
		Int64("requests", v.Recent.Total).Int64("failed", v.Recent.Failed).Msg("resource summary of the last five minutes")
}

// StatsView is the answer.
type StatsView struct {
	Daemon    Daemon    `json:"daemon_info"`
	Resources Resources `json:"resource_status"`
	// Since is since the start, Recent of the last five minutes.
	Since       Performance `json:"performance_metrics"`
	Recent      Performance `json:"performance_metrics_5m"`
	Security    Security    `json:"security_summary"`
	Connections Connections `json:"connection_summary"`
}

// Daemon is the server.
type Daemon struct {
	Version   string  `json:"version"`
	Uptime    float64 `json:"uptime_seconds"`
	Formatted string  `json:"uptime_formatted"`
}

// Resources are what the process and its children use. A MB is 2^20 bytes, 100 percent one core; both are absent where the process was
// not measured yet, or cannot be.
type Resources struct {
	Memory     *float64 `json:"memory_mb,omitempty"`
	CPU        *float64 `json:"cpu_percent,omitempty"`
	PeakMemory *float64 `json:"peak_memory_mb,omitempty"`
	PeakCPU    *float64 `json:"peak_cpu_percent,omitempty"`
	// PerMinute is how many calls the last 60 s had, Concurrent how many are under way.
	PerMinute  int64 `json:"requests_per_minute"`
	Concurrent int   `json:"concurrent_requests"`
	// Violations and Warnings are what the guard found at a limit, and near one.
	Violations []string `json:"violations"`
	Warnings   []string `json:"warnings"`
}

// Security is whom the server turned away.
type Security struct {
	// Events is Invalid, Rejected and the connections that were turned away.
	Events int64 `json:"total_security_events"`
	// Invalid are calls that were not as described: 400, 413, 415, 422.
	Invalid int64 `json:"validation_failures"`
	// Rejected are calls that were refused: 401, 403, 429, 503.
	Rejected int64 `json:"requests_rejected"`
}

// Connections are those that Serve takes.
type Connections struct {
	// Total is how many came in since the start, Active how many are open, Stale how many of these are idle and never showed a credential:
	// they make room where there are too many. TurnedAway is how many were not let in, or closed for others.
	Total      int64 `json:"total"`
	Active     int   `json:"active"`
	Stale      int   `json:"stale"`
	TurnedAway int64 `json:"turned_away"`
}

// View returns what is known now.
func (s *Stats) View(now time.Time) StatsView {
	t, uptime := s.calls.told(now), now.Sub(s.began).Truncate(time.Second)
	v := StatsView{
		Daemon: Daemon{s.config.Version, uptime.Seconds(), uptime.String()}, Since: t.since, Recent: t.recent,
		Resources:   Resources{PerMinute: t.minute, Concurrent: s.config.UnderWay(), Violations: []string{}, Warnings: []string{}},
		Connections: s.config.Connections(),
	}
	v.Security = Security{Events: t.invalid + t.rejected + v.Connections.TurnedAway, Invalid: t.invalid, Rejected: t.rejected}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.mu.measured {
		r := &v.Resources
		r.Memory, r.PeakMemory = megabytes(s.mu.now.Memory), megabytes(s.mu.peak.Memory)
		r.CPU, r.PeakCPU = percent(s.mu.now.CPU), percent(s.mu.peak.CPU)
	}
	for _, c := range s.mu.states {
		switch c.To {
		case guard.Violation:
			v.Resources.Violations = append(v.Resources.Violations, c.String())
		case guard.Warning:
			v.Resources.Warnings = append(v.Resources.Warnings, c.String())
		case guard.Normal:
		}
	}
	slices.Sort(v.Resources.Violations)
	slices.Sort(v.Resources.Warnings)
	return v
}

func megabytes(bytes int64) *float64 { return new(tenth(float64(bytes) / (1 << 20))) }

func percent(cores float64) *float64 { return new(tenth(cores * 100)) }

// tenth rounds for people.
func tenth(f float64) float64 { return math.Round(f*10) / 10 }
