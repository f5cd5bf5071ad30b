package main

import (
	"bytes"
	"flag"
	"os"
	"slices"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write the tables of the README and of docs/perf/comparison.md anew")

// TestTheTablesAreThoseOfTheRounds asserts that the README and docs/perf/comparison.md have what the committed rounds came to. Rows that `make bench`
// does not measure are of no concern.
func TestTheTablesAreThoseOfTheRounds(t *testing.T) {
	t.Parallel()
	found, err := read([]string{"rounds.txt"})
	if err != nil {
		t.Fatal(err)
	}
	var long, summary bytes.Buffer
	if err := write(&long, judge(targets, found)); err != nil {
		t.Fatal(err)
	}
	if err := writeShort(&summary, found); err != nil {
		t.Fatal(err)
	}
	holds(t, "../../../docs/perf/comparison.md", long.String())
	holds(t, "../../../README.md", summary.String())
}

// holds asserts that a page has a table, rows that were not measured apart.
func holds(t *testing.T, name, table string) {
	t.Helper()
	page, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	lines, rows := strings.Split(string(page), "\n"), strings.Split(strings.TrimSpace(table), "\n")
	from := slices.Index(lines, rows[0])
	if from < 0 {
		t.Fatalf("%s has no table with the head %s", name, rows[0])
	}
	to := from
	for to < len(lines) && strings.HasPrefix(lines[to], "|") {
		to++
	}
	unmeasured := slices.DeleteFunc(slices.Clone(lines[from:to]), func(line string) bool { return !strings.HasPrefix(line, "| T17 |") })
	for i, row := range rows {
		if strings.Contains(row, "| not measured |") && len(unmeasured) > 0 {
			rows[i], unmeasured = unmeasured[0], unmeasured[1:]
		}
	}
	if slices.Equal(rows, lines[from:to]) {
		return
	}
	if *update {
		if err := os.WriteFile(name, []byte(strings.Join(slices.Replace(lines, from, to, rows...), "\n")), 0o644); err != nil { //nolint:gosec // a page of the repository
			t.Fatal(err)
		}
		return
	}
	t.Errorf("the table of %s is not that of rounds.txt: go test -C loadtest/peers ./targets -update, and read the difference", name)
}
