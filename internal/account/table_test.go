package account_test

import (
	"fmt"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

const (
	document = "../../docs/perf/account.md"
	begin    = "<!-- go test ./internal/account -update -->\n"
	end      = "<!-- end of the account -->"
	// explained heads the list of why each command is there.
	explained = "\n## Why each command is there\n"
	head      = "| call | script: what runs of it | commands of Redis | bytes there, back | Go: allocations, bytes | µs of Redis, of them commands |\n" +
		"| --- | --- | --- | --- | --- | --- |\n"
)

// page is docs/perf/account.md around the table.
type page struct {
	before, after string
	// rows are those of the table, by their calls.
	rows map[string]line
}

// line is a row of the table: its cells.
type line struct{ call, branch, commands, bytes, memory, micros string }

func (l line) text() string {
	return "| " + strings.Join([]string{l.call, l.branch, l.commands, l.bytes, l.memory, l.micros}, " | ") + " |\n"
}

// lineOf makes the cells of what a row was measured to cost.
func lineOf(r row, c cost) line {
	of := func(n float64) string {
		part := n / float64(r.jobs)
		switch {
		case r.jobs == 1:
			return fmt.Sprintf("%.0f", n)
		case part < 100:
			return fmt.Sprintf("%.0f = %.3g", n, part)
		}
		return fmt.Sprintf("%.0f = %.0f", n, part)
	}
	commands := of(float64(number(c.commands))) + ": " + strings.Join(c.commands, ", ")
	return line{
		r.call, r.branch, commands, of(float64(c.sent)) + ", " + of(float64(c.received)),
		of(float64(c.allocations)) + ", " + of(float64(c.allocated)), of(c.micros) + ", " + of(c.inner),
	}
}

// number adds the numbers before the commands.
func number(commands []string) (n int) {
	for _, c := range commands {
		count, _, _ := strings.Cut(c, " ")
		if k, err := strconv.Atoi(count); err == nil {
			n += k
		} else {
			n++
		}
	}
	return n
}

// commandsOf returns what a cell names, in an order of its own: a script may walk a table, which has none.
func commandsOf(cell string) []string {
	_, list, _ := strings.Cut(cell, ": ")
	commands := strings.Split(list, ", ")
	slices.Sort(commands)
	return commands
}

// figures are the numbers of a cell, without those after =.
var figure = regexp.MustCompile(`(\d+)(?: = [0-9.]+)?`)

func figuresOf(t *testing.T, cell string) (out []int) {
	t.Helper()
	for _, found := range figure.FindAllStringSubmatch(cell, -1) {
		n, err := strconv.Atoi(found[1])
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, n)
	}
	return out
}

// near reports whether figures differ from what is said by so many hundredths of it at most, or by the least.
func near(t *testing.T, got, said string, hundredths, least int) bool {
	t.Helper()
	return slices.EqualFunc(figuresOf(t, got), figuresOf(t, said), func(x, y int) bool {
		return max(x, y)-min(x, y) <= max(least, y*hundredths/100)
	})
}

func readPage(t *testing.T) (p page) {
	t.Helper()
	raw, err := os.ReadFile(document)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, ok := strings.Cut(string(raw), begin)
	table, after, closed := strings.Cut(rest, end)
	if !ok || !closed {
		t.Fatalf("%s has no table between %q and %q", document, begin, end)
	}
	p = page{before: before + begin, after: end + after, rows: map[string]line{}}
	for row := range strings.Lines(strings.TrimPrefix(table, head)) {
		cells := strings.Split(strings.Trim(row, "|\n"), " | ")
		if len(cells) != 6 {
			t.Fatalf("the row %q has %d cells", row, len(cells))
		}
		l := line{strings.TrimSpace(cells[0]), cells[1], cells[2], cells[3], cells[4], strings.TrimSpace(cells[5])}
		p.rows[l.call] = l
	}
	return p
}

func (p page) write(t *testing.T, lines []line) {
	t.Helper()
	text := []byte(p.before + head)
	for _, l := range lines {
		text = append(text, l.text()...)
	}
	if err := os.WriteFile(document, append(text, p.after...), 0o600); err != nil {
		t.Fatal(err)
	}
}

// explanation returns the commands that the list explains, in the order of the list.
func (p page) explanation(t *testing.T) (commands []string) {
	t.Helper()
	_, list, ok := strings.Cut(p.after, explained)
	if !ok {
		t.Fatalf("%s has no %q", document, explained)
	}
	list, _, _ = strings.Cut(list, "\n##")
	for row := range strings.Lines(list) {
		cell, ok := strings.CutPrefix(row, "| `")
		if !ok {
			continue
		}
		cell, _, _ = strings.Cut(cell, " |")
		for command := range strings.SplitSeq(cell, ",") {
			commands = append(commands, strings.Trim(command, " `"))
		}
	}
	return commands
}
