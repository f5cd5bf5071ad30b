package report

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/jedib0t/go-pretty/v6/text"
)

// widthOfText is how wide a text is on a terminal.
func widthOfText(out string) (widest int) {
	for line := range strings.Lines(out) {
		widest = max(widest, text.StringWidth(strings.TrimSuffix(line, "\n")))
	}
	return widest
}

// TestATableFitsWhereItGoes: what is too wide for a terminal is wrapped in its widest cells, and nothing is lost.
func TestATableFitsWhereItGoes(t *testing.T) {
	t.Parallel()
	const terminal = 120
	for _, words := range []int{1, 3} {
		var out strings.Builder
		made := NewTable(&out, words, "queue", "jobs", "state")
		made.most = terminal
		made.AppendRow(table.Row{"mail", 7, strings.Repeat("waits for it ", 20)})
		made.AppendRow(table.Row{strings.Repeat("q,", 64), 123456, `{"max_running":20}`})
		made.Render()
		if widest := widthOfText(out.String()); widest > terminal || widest < terminal-10 {
			t.Errorf("%d wide:\n%s", widest, out.String())
		}
		if n := strings.Count(out.String(), "waits"); n != 20 || strings.Count(out.String(), "q,") < 63 {
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

// TestNamesAndIDsAreNeverCut: on a terminal all else is wrapped first, and elsewhere nothing is, so that a row is a line.
func TestNamesAndIDsAreNeverCut(t *testing.T) {
	t.Parallel()
	const id = "01a22949-148e-7f0c-b9b3-fad534a213b0"
	long := "tenant@example.com/" + strings.Repeat("x", 100)
	rows := func(made *Table) {
		made.AppendRow(table.Row{"acme", id, "held by " + long, strings.Repeat("waits for it ", 20)})
		made.AppendRow(table.Row{long, id, "", ""})
		made.Render()
	}
	for _, terminal := range []int{60, 80, 120} {
		var out strings.Builder
		made := NewTable(&out, 4, "tenant", "id", "note", "why")
		made.most = terminal
		rows(made)
		if strings.Count(out.String(), id) != 2 || strings.Count(out.String(), long) != 2 {
			t.Errorf("in %d columns a name is cut:\n%s", terminal, out.String())
		}
		if !strings.Contains(out.String(), "│ waits for it") || strings.Contains(out.String(), strings.Repeat("waits for it ", 2)) {
			t.Errorf("in %d columns what may be wrapped is not:\n%s", terminal, out.String())
		}
	}
	file, err := os.Create(filepath.Join(t.TempDir(), "out"))
	if err != nil {
		t.Fatal(err)
	}
	rows(NewTable(file, 4, "tenant", "id", "note", "why"))
	out, err := os.ReadFile(file.Name())
	if err != nil {
		t.Fatal(err)
	}
	if want := fmt.Sprintf("│ acme%s │ %s │ held by %s │ %s", strings.Repeat(" ", len(long)-4), id, long, strings.Repeat("waits for it ", 20)); !strings.Contains(string(out), want) {
		t.Errorf("in a file a row is not a line:\n%s", out)
	}
}
