package cli

import (
	"fmt"
	"strings"
	"time"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/cmd/headgate/internal/report"
	"github.com/headgate/headgate/internal/shown"
)

// Clock writes a time for people, in UTC; zero is a dash.
func Clock(t time.Time) string {
	if t.IsZero() {
		return "-"
	}
	return t.UTC().Format("2006-01-02 15:04:05Z")
}

// ShownText is how much of a text a table shows.
const ShownText = 80

// At is Clock for a time that may be nil, which is empty.
func At(t *time.Time) string {
	if t == nil {
		return ""
	}
	return Clock(*t)
}

// Until says when something ends; a nil time says nothing.
func Until(t *time.Time) string {
	if t == nil {
		return ""
	}
	return ", until " + Clock(*t)
}

// Because puts a reason into brackets; none says nothing.
func Because(reason string) string {
	if reason == "" {
		return ""
	}
	return " (" + report.Tame(reason, ShownText) + ")"
}

// GateWords says how a gate stands.
func GateWords(g shown.Gate) string {
	switch {
	case g.Burst > 0:
		return "starts " + admission.TokensPerSecond(g.Rate).Words("job")
	case g.Limit == 0 && strings.HasPrefix(string(g.Name), "b:"):
		return "held by its circuit breaker"
	case g.NoShare:
		return fmt.Sprintf("waits for its cap to be shared out, %d jobs run", g.Held)
	case g.Limit == 0:
		return "paused" + Because(g.Reason) + Until(g.Until)
	case g.Held >= g.Limit:
		return fmt.Sprintf("full: %d of %d jobs%s%s", g.Held, g.Limit, Because(g.Reason), Until(g.Until))
	}
	return fmt.Sprintf("%d of %d jobs%s%s", g.Held, g.Limit, Because(g.Reason), Until(g.Until))
}
