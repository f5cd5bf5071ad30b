package account_test

import (
	"flag"
	"maps"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "measure all anew and write the account into docs/perf/account.md")

// row is a call whose cost is measured.
type row struct {
	// call is the SDK's, branch the script's and the fragments' that it runs.
	call, branch string
	// jobs is how many are in a call.
	jobs int
	// open makes a partition ready and returns what prepares a call.
	open func(s *site) (prepare func() (call func()))
}

// rows is the account, in its order.
func rows() []row {
	return slices.Concat(checkRows(), semaphoreRows(), admitRows(), seldomAdmitRows(), finishRows(), seldomFinishRows(), timerRows())
}

// fewCalls tell all but the time, for which mostCalls are made.
const fewCalls = 8

// TestTheAccountIsTrue asserts that each call sends the commands that docs/perf/account.md says, in as many bytes, with as many
// allocations. It is not parallel, nor is any other test here: the allocations are those of the whole process.
func TestTheAccountIsTrue(t *testing.T) {
	redis, page := newBench(t), readPage(t)
	var measured []line
	for _, r := range rows() {
		t.Run(r.call, func(t *testing.T) {
			s := newSite(t, redis)
			prepare := r.open(s)
			c := s.measure(prepare, fewCalls)
			if *update {
				c.micros, c.inner = s.time(prepare, mostCalls)
			} else {
				compare(t, lineOf(r, c), page.rows[r.call])
			}
			measured = append(measured, lineOf(r, c))
		})
	}
	if *update && len(measured) == len(rows()) {
		page.write(t, measured)
		return
	}
	if len(page.rows) != len(rows()) {
		t.Errorf("%s has %d rows, there are %d", document, len(page.rows), len(rows()))
	}
	if t.Failed() {
		t.Logf("if this is meant: go test ./internal/account -update, and read the difference")
	}
}

// compare holds a measured row to that of the table.
func compare(t *testing.T, got, said line) {
	t.Helper()
	if got.branch != said.branch {
		t.Errorf("the branch is %q, the table says %q", got.branch, said.branch)
	}
	if !slices.Equal(commandsOf(got.commands), commandsOf(said.commands)) {
		t.Errorf("the commands are\n%s\nthe table says\n%s", got.commands, said.commands)
	}
	if !near(t, got.bytes, said.bytes, 3, 8) {
		t.Errorf("bytes there and back are %s, the table says %s", got.bytes, said.bytes)
	}
	if !underRace() && !near(t, got.memory, said.memory, 10, 2) {
		t.Errorf("allocations and their bytes are %s, the table says %s", got.memory, said.memory)
	}
}

// underRace reports whether the race detector runs, which allocates, too.
func underRace() bool {
	info, _ := debug.ReadBuildInfo()
	return info != nil && slices.Contains(info.Settings, debug.BuildSetting{Key: "-race", Value: "true"})
}

// TestEachCommandIsExplained asserts that docs/perf/account.md says of each command of the account why it is there, and of no other.
func TestEachCommandIsExplained(t *testing.T) {
	page := readPage(t)
	sent := map[string]bool{}
	for _, l := range page.rows {
		for _, command := range commandsOf(l.commands) {
			sent[strings.TrimLeft(command, " 0123456789")] = true
		}
	}
	known := page.explanation(t)
	for _, command := range slices.Sorted(maps.Keys(sent)) {
		if !slices.Contains(known, command) {
			t.Errorf("%s is in the account and not explained", command)
		}
	}
	for i, command := range known {
		switch {
		case !sent[command]:
			t.Errorf("%s is explained and not in the account", command)
		case slices.Contains(known[:i], command):
			t.Errorf("%s is explained twice", command)
		}
	}
}

func TestAPageIsReadAsItIsWritten(t *testing.T) {
	t.Parallel()
	l := lineOf(row{call: "a", branch: "b: c", jobs: 64}, cost{commands: []string{"TIME", "64 HGET ten"}, sent: 6400, received: 64})
	if want := "| a | b: c | 65 = 1.02: TIME, 64 HGET ten | 6400 = 100, 64 = 1 | 0 = 0, 0 = 0 | 0 = 0, 0 = 0 |\n"; l.text() != want {
		t.Errorf("the row is %q, want %q", l.text(), want)
	}
	if got := figuresOf(t, l.bytes); !slices.Equal(got, []int{6400, 64}) {
		t.Errorf("the figures are %v", got)
	}
	for more, want := range map[int]bool{192: true, 193: false} {
		if near(t, strconv.Itoa(6400+more)+" = 1, 64", "6400 = 100, 64", 3, 8) != want {
			t.Errorf("%d more is near: %v", more, !want)
		}
	}
}
