package report

import (
	"strings"
	"testing"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/jedib0t/go-pretty/v6/text"
)

// TestATableFitsWhereItGoes: what is too wide is wrapped in its widest cells, and nothing is lost.
func TestATableFitsWhereItGoes(t *testing.T) {
	t.Parallel()
	for _, words := range []int{1, 3} {
		var out strings.Builder
		made := NewTable(&out, words, "queue", "jobs", "state")
		made.AppendRow(table.Row{"mail", 7, strings.Repeat("waits for it ", 20)})
		made.AppendRow(table.Row{strings.Repeat("q", 128), 123456, `{"max_running":20}`})
		made.Render()
		widest := 0
		for line := range strings.Lines(out.String()) {
			widest = max(widest, text.StringWidth(strings.TrimSuffix(line, "\n")))
		}
		if widest > usualWidth || widest < usualWidth-10 {
			t.Errorf("%d wide:\n%s", widest, out.String())
		}
		if n := strings.Count(out.String(), "waits"); n != 20 || strings.Count(out.String(), "q") < 128 {
			t.Errorf("%d of 20 are there:\n%s", n, out.String())
		}
	}
	var out strings.Builder
	narrow := NewTable(&out, 1, "queue", "jobs")
	narrow.AppendRow(table.Row{"mail", 7})
	narrow.Render()
	if want := "╭───────┬──────╮\n│ queue │ jobs │\n├───────┼──────┤\n│ mail  │    7 │\n╰───────┴──────╯\n"; out.String() != want {
		t.Errorf("\n%s", out.String())
	}
}
