package demo

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/headgate/headgate/cmd/headgate/internal/ledger"
	"github.com/headgate/headgate/cmd/headgate/internal/report"
)

// slicesPerPart is how fine the picture is; a part is a second by default.
const slicesPerPart = 2

// show paints progress until ctx ends, and leaves the terminal to the summary.
func (d *demo) show(ctx context.Context) {
	painter := report.NewPainter(d.config.Progress)
	defer painter.Done(true)
	tick := time.NewTicker(report.PaintEvery)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			elapsed := d.elapsed()
			painter.Paint(d.picture(elapsed), d.line(elapsed))
		case <-ctx.Done():
			return
		}
	}
}

// picture is the live table.
func (d *demo) picture(elapsed time.Duration) string {
	var text strings.Builder
	part := min(1, elapsed.Seconds()/d.config.Duration.Seconds())
	fmt.Fprintf(&text, "headgate demo  %s  %4.1f s of %.0f s\n", report.Bar(part, 24), elapsed.Seconds(), d.config.Duration.Seconds())
	fmt.Fprintf(&text, "now: %s\n\n", d.scene(elapsed))
	fmt.Fprintf(&text, "  %-8s %-9s %8s %9s %8s %8s %8s %7s\n", "tenant", "tier", "asked", "admitted", "refused", "waiting", "running", "done")
	for _, a := range cast {
		p := d.stage.Ledger().TenantProgress(a.tenant)
		fmt.Fprintf(&text, "  %-8s %-9s %8d %9d %8d %8d %8d %7d\n",
			a.tenant, a.tier, p.Asked, p.Admitted, p.Refused, p.Admitted-p.Started, p.Running, p.Done)
	}
	text.WriteString("\n")
	writePicture(&text, d.script, elapsed, d.timelines(elapsed), d.stage.Ledger().Periods(bakery.downstream), d.start)
	return text.String()
}

// line is the progress where there is no terminal.
func (d *demo) line(elapsed time.Duration) string {
	parts := make([]string, len(cast))
	for i, a := range cast {
		p := d.stage.Ledger().TenantProgress(a.tenant)
		parts[i] = fmt.Sprintf("%s %d asked, %d refused, %d done", a.tenant, p.Asked, p.Refused, p.Done)
	}
	return fmt.Sprintf("%4.1f s: %s. %s", elapsed.Seconds(), strings.Join(parts, "; "), d.scene(elapsed))
}

// scene says what goes on.
func (d *demo) scene(elapsed time.Duration) string {
	var scenes []string
	if d.script.within(elapsed, floodBegins, floodEnds) {
		scenes = append(scenes, fmt.Sprintf("the crawler floods with %.0f jobs a second", crawler.flood))
	}
	open := len(d.stage.Ledger().NotClosed()) > 0
	switch dead := d.script.mailDead(elapsed); {
	case dead && open:
		scenes = append(scenes, "mail is dead and its breaker holds the bakery's jobs back")
	case dead:
		scenes = append(scenes, "mail has died")
	case open:
		scenes = append(scenes, "mail is alive again, the breaker probes it")
	}
	if elapsed >= d.script.at(sendingEnds) {
		scenes = append(scenes, "nobody sends any more, what waits is worked off")
	}
	if len(scenes) == 0 {
		return "all is calm"
	}
	return strings.Join(scenes, "; ")
}

// timelines returns the tenants' timelines up to a moment.
func (d *demo) timelines(elapsed time.Duration) map[string]ledger.Timeline {
	slice := d.script.part / slicesPerPart
	return d.stage.Ledger().Timelines(d.start, slice, int(elapsed/slice)+1)
}

// limitTexts says what each tenant's limit is.
func (d *demo) limitTexts() map[string]string {
	texts := map[string]string{}
	for _, a := range cast {
		limit := d.stage.Limit(a.tenant)
		texts[a.tenant] = fmt.Sprintf("%d tokens a second, bursts of %d", limit.Tokens, limit.Burst)
	}
	return texts
}
