package replay

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/headgate/headgate/cmd/headgate/internal/report"
)

// show paints progress until ctx ends.
func (r *replay) show(ctx context.Context) {
	painter := report.NewPainter(r.config.Progress)
	defer painter.Done(true)
	tick := time.NewTicker(report.PaintEvery)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			painter.Paint(r.picture(), r.line())
		case <-ctx.Done():
			return
		}
	}
}

func (r *replay) picture() string {
	p, rows := r.stage.Ledger().Progress(), len(r.config.Trace.Rows)
	part := float64(p.Asked) / float64(max(1, rows))
	var text strings.Builder
	fmt.Fprintf(&text, "%s %3.0f %%  %d of %d rows in, %s\n", report.Bar(part, 30), 100*part, p.Asked, rows, time.Since(r.start).Round(100*time.Millisecond))
	fmt.Fprintf(&text, "admitted %-7d refused %-7d waiting %-7d running %-4d done %-7d failed %d\n",
		p.Admitted, p.Refused, p.Admitted-p.Started, p.Running, p.Done, p.Failures)
	if open := r.stage.Ledger().NotClosed(); len(open) > 0 {
		fmt.Fprintf(&text, "breakers not closed: %s\n", strings.Join(open, ", "))
	}
	return text.String()
}

func (r *replay) line() string {
	p := r.stage.Ledger().Progress()
	open := ""
	if names := r.stage.Ledger().NotClosed(); len(names) > 0 {
		open = ", breakers not closed: " + strings.Join(names, " ")
	}
	return fmt.Sprintf("%5.1f s: %d of %d rows in, %d admitted, %d refused, %d waiting, %d done, %d failed runs%s",
		time.Since(r.start).Seconds(), p.Asked, len(r.config.Trace.Rows), p.Admitted, p.Refused, p.Admitted-p.Started, p.Done, p.Failures, open)
}
