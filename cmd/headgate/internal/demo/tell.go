package demo

import (
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/cmd/headgate/internal/ledger"
	"github.com/headgate/headgate/cmd/headgate/internal/report"
)

// Outcome is a story that was told.
type Outcome struct {
	Run report.Run

	script script
	start  time.Time
	// told is the moment of the story at which it ended. Nothing that comes after it in the script has happened.
	told      time.Duration
	limits    map[string]string
	timelines map[string]ledger.Timeline
	// beside is how long the bakery's jobs waited during the flood, before mail died.
	beside ledger.Waits
}

// Write writes the summary for people.
func (o *Outcome) Write(to io.Writer) {
	fmt.Fprintf(to, "What happened in %.1f seconds, with %d slots of one worker", o.Run.Wall.Seconds(), slots)
	if o.Run.Interrupted {
		fmt.Fprintf(to, ", interrupted after %.1f of %.0f", o.told.Seconds(), o.script.at(parts).Seconds())
	}
	fmt.Fprint(to, ":\n\n")
	o.writeTenants(to)
	fmt.Fprintln(to, "\nWho was served when:")
	writePicture(to, o.script, o.told, o.timelines, o.mail().Periods, o.start)
	fmt.Fprintln(to)
	o.writeFlood(to)
	o.writeUrgent(to)
	o.writeBreaker(to)
	o.writeBooks(to)
}

func (o *Outcome) writeTenants(to io.Writer) {
	t := report.NewTable(to, 2, "tenant", "tier", "asked", "admitted", "refused", "retry after", "started", "wait p50", "wait p99", "done")
	for _, a := range cast {
		tenant := o.tenant(a)
		retry := "-"
		if tenant.Longest > 0 {
			retry = "≤ " + report.Short(tenant.Longest)
		}
		t.AppendRow([]any{
			a.tenant, a.tier, tenant.Asked, tenant.Admitted, tenant.Refused, retry, tenant.Started,
			report.Short(tenant.Wait.P50), report.Short(tenant.Wait.P99), tenant.Done,
		})
	}
	t.Render()
}

func (o *Outcome) tenant(a actor) ledger.Tenant {
	for _, t := range o.Run.Figures.Tenants {
		if t.Name == a.tenant {
			return t
		}
	}
	return ledger.Tenant{Name: a.tenant}
}

// mail is the story of the breaker that opened; empty if it did not.
func (o *Outcome) mail() ledger.Breaker {
	for _, b := range o.Run.Figures.Breakers {
		if b.Downstream == bakery.downstream {
			return b
		}
	}
	return ledger.Breaker{Downstream: bakery.downstream}
}

// reached reports whether the story came to a part of the script.
func (o *Outcome) reached(part float64) bool { return o.told >= o.script.at(part) }

func (o *Outcome) writeFlood(to io.Writer) {
	if !o.reached(floodBegins) {
		fmt.Fprintln(to, "THE FLOOD    had not begun when the demo ended.")
		return
	}
	flood := o.tenant(crawler)
	fmt.Fprintf(to, "THE FLOOD    The crawler asked for %d jobs of %d tokens each. Its tier allows %s,\n", flood.Asked, crawler.cost, o.limits[crawler.tenant])
	fmt.Fprintf(to, "             so %d were refused at the gate", flood.Refused)
	if v := flood.LastRefusal; v.Reason == admission.ReasonLimited {
		fmt.Fprintf(to, " and told why: scope %s, tokens left %d, retry after %s at most", v.Scope, v.TokensLeft, report.Short(flood.Longest))
	}
	until := ""
	if o.reached(mailDies) {
		until = ", until mail died"
	}
	fmt.Fprintf(to, ".\n             What got in waited %s (p99), behind itself. The bakery, in the same class,\n", report.Short(flood.Wait.P99))
	fmt.Fprintf(to, "             waited %s (p50) and %s (p99) beside it%s.\n", report.Short(o.beside.P50), report.Short(o.beside.P99), until)
}

func (o *Outcome) writeUrgent(to io.Writer) {
	urgent := o.tenant(clinic)
	fmt.Fprintf(to, "URGENT WORK  The clinic sent %d alerts, each to start within %s, and %d did: p99 after %s,\n             the slowest after %s.\n",
		urgent.Admitted, report.Short(clinic.deadline), urgent.Started, report.Short(urgent.Wait.P99), report.Short(urgent.Wait.Max))
}

func (o *Outcome) writeBreaker(to io.Writer) {
	b := o.mail()
	since := func(at time.Time) string { return fmt.Sprintf("%.1f s", at.Sub(o.start).Seconds()) }
	if !o.reached(mailDies) {
		fmt.Fprintln(to, "THE BREAKER  mail had not died yet when the demo ended.")
		return
	}
	fmt.Fprintf(to, "THE BREAKER  mail died at %.1f s", o.script.at(mailDies).Seconds())
	if len(b.Periods) == 0 {
		fmt.Fprintln(to, "; its breaker did not open.")
		return
	}
	last := b.Periods[len(b.Periods)-1]
	fmt.Fprintf(to, ". Its breaker opened at %s; until then failed runs had burnt %d attempts.\n", since(b.Periods[0].Opened), b.Burnt)
	fmt.Fprintf(to, "             It held %d of the bakery's jobs back, unharmed, and sent probes, of which %d failed\n"+
		"             and burnt no attempt.", b.HeldBack, b.Probes)
	if last.Closed.IsZero() {
		fmt.Fprintln(to, " It had not closed again when the demo ended.")
		return
	}
	fmt.Fprintf(to, " mail was alive at %.1f s; the breaker closed at %s, and the jobs ran.\n", o.script.at(mailAlive).Seconds(), since(last.Closed))
}

func (o *Outcome) writeBooks(to io.Writer) {
	s := report.NewSummary(o.Run)
	fmt.Fprintf(to, "THE BOOKS    %d submitted = %d admitted + %d refused. Of those admitted the store counts %d completed,\n"+
		"             %d expired, %d dead and %d waiting: ", s.Submitted, s.Admitted, s.Submitted-s.Admitted-s.Duplicates, s.Completed, s.Expired, s.Dead, s.Waiting)
	if s.Conserved {
		fmt.Fprintln(to, "no job was lost.")
	} else {
		fmt.Fprintln(to, "THEY DO NOT ADD UP.")
	}
}

// writePicture draws who asked and who was served, slice by slice, and what mail and its breaker did.
// told is how much of the script has happened.
func writePicture(to io.Writer, s script, told time.Duration, timelines map[string]ledger.Timeline, periods []ledger.Period, start time.Time) {
	var strips []report.Strip
	length := 0
	for _, a := range cast {
		t := timelines[a.tenant]
		length = len(t.Asked)
		strips = append(strips,
			report.Strip{Label: a.tenant + " asked", Counts: t.Asked, Clipped: true},
			report.Strip{Label: a.tenant + " served", Counts: t.Started})
	}
	marks := slices.Repeat([]rune{'·'}, length)
	for i := range marks {
		from := time.Duration(i) * s.part / slicesPerPart
		to := from + s.part/slicesPerPart
		switch at := start.Add(from); {
		case anyPeriod(periods, at, start.Add(to)):
			marks[i] = '×'
		case from <= told && s.mailDead(from):
			marks[i] = '!'
		}
	}
	strips = append(strips, report.Strip{Label: "mail's breaker", Marks: marks, Note: "· closed  ! mail dead  × open"})
	report.WriteStrips(to, strips, slicesPerPart, s.part)
}

// anyPeriod reports whether a breaker was not closed at some time between two moments.
func anyPeriod(periods []ledger.Period, from, to time.Time) bool {
	return slices.ContainsFunc(periods, func(p ledger.Period) bool {
		return p.Opened.Before(to) && (p.Closed.IsZero() || p.Closed.After(from))
	})
}
