package command

import (
	"cmp"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/loadtest/internal/load"
	"github.com/headgate/headgate/policy"
)

// configuration is what was run, with every law on.
type configuration struct {
	Scenario  string            `json:"scenario"`
	Rate      float64           `json:"rate_per_s"`
	DurationS float64           `json:"duration_s"`
	Tenants   int               `json:"tenants"`
	Queues    int               `json:"queues"`
	Classes   []admission.Class `json:"classes"`
	Slots     int               `json:"slots"`
	// MedianWorkMS is the median of how long handlers work.
	MedianWorkMS float64 `json:"median_work_ms"`
	Global       bucket  `json:"global_limit"`
	Tenant       bucket  `json:"tenant_limit"`
	// Levels is how many levels of limits every job passes.
	Levels       int            `json:"limit_levels"`
	DedupWindowS float64        `json:"dedup_window_s"`
	Caps         map[string]int `json:"caps,omitempty"`
	CooldownS    float64        `json:"breaker_cooldown_s"`
	MaxAttempts  int            `json:"max_attempts"`
}

type bucket struct {
	Rate  float64          `json:"rate_per_s"`
	Burst admission.Tokens `json:"burst"`
}

func (b bucket) String() string { return fmt.Sprintf("%.4g/s burst %d", b.Rate, b.Burst) }

func bucketOf(limit admission.Limit) bucket { return bucket{float64(limit.Rate()), limit.Burst} }

// defaultCooldown is that of a breaker which nobody configured.
const defaultCooldown = time.Minute

func describe(p *load.Plan) configuration {
	return configuration{
		Scenario: p.Scenario, Rate: p.Rate(), DurationS: p.Duration.Seconds(), Tenants: len(p.Tenants), Queues: len(p.Queues),
		Classes: p.Classes, Slots: p.Slots, MedianWorkMS: float64(p.MedianWork().Microseconds()) / 1000,
		Global: bucketOf(p.Policy.Global), Tenant: bucketOf(p.TenantLimit()), Levels: p.Levels,
		DedupWindowS: policy.DefaultDedupWindow.Seconds(), Caps: p.Caps,
		CooldownS: cmp.Or(p.Breaker.OpenBase, defaultCooldown).Seconds(), MaxAttempts: p.MaxAttempts,
	}
}

// load says what is sent, laws what it passes.
func (c configuration) load() string {
	names := make([]string, 0, len(c.Classes))
	for _, class := range c.Classes {
		names = append(names, fmt.Sprintf("%s %d", class.Name, class.Weight))
	}
	const shown = 4
	classes := strings.Join(names[:min(len(names), shown)], ", ")
	if len(names) > shown {
		classes += ", ..."
	}
	return fmt.Sprintf("%.4g jobs/s for %.4g s, %d tenants, %d queues, %d classes (%s), %d slots, %.4g ms of work",
		c.Rate, c.DurationS, c.Tenants, c.Queues, len(c.Classes), classes, c.Slots, c.MedianWorkMS)
}

func (c configuration) laws() string {
	levels := "global and tenant"
	if c.Levels == admission.Levels {
		levels = "global, tenant, queue and priority"
	}
	var text strings.Builder
	fmt.Fprintf(&text, "limits at the levels %s (global %s, the others %s), dedup %.4g s, fair between tenants, breakers with %.4g s of cooldown, %d attempts",
		levels, c.Global, c.Tenant, c.DedupWindowS, c.CooldownS, c.MaxAttempts)
	for queue, units := range c.Caps {
		fmt.Fprintf(&text, ", queue %s capped at %d running", queue, units)
	}
	return text.String()
}

func (c configuration) write(to io.Writer) {
	fmt.Fprintf(to, "%s: %s\n  every law on: %s\n", c.Scenario, c.load(), c.laws())
}
