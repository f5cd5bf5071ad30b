package main

import (
	"flag"
	"os"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write the table into the document")

const (
	document = "../../docs/EXTRAPOLATION.md"
	begin    = "<!-- go run ./loadtest/scale -->\n"
	end      = "<!-- end -->"
)

// TestTheDocumentFollowsFromItsCosts: a new cost in it makes a new table.
func TestTheDocumentFollowsFromItsCosts(t *testing.T) {
	t.Parallel()
	raw, err := os.ReadFile(document)
	if err != nil {
		t.Fatal(err)
	}
	text := string(raw)
	c, err := readCosts(text)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, ok := strings.Cut(text, begin)
	said, after, closed := strings.Cut(rest, end)
	if !ok || !closed {
		t.Fatalf("%s has no table between %q and %q", document, begin, end)
	}
	want := table(c)
	if said == want {
		return
	}
	if !*update {
		t.Fatalf("it says\n%s\nits costs come to\n%s\nrun: go test ./loadtest/scale -update", said, want)
	}
	if err := os.WriteFile(document, []byte(before+begin+want+end+after), 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestATableIsComputedFromCosts(t *testing.T) {
	t.Parallel()
	c := costs{
		job: 40, alone: 100, check: 10, jobNet: 1000, aloneNet: 2000, checkNet: 200,
		waiting: 500, ended: 80, bucket: 60, busy: 0.5, replicas: 1, backlog: 60, window: 60,
	}
	text := table(c)
	for _, want := range []string{
		"| 1,000,000 jobs/s in batches of 64 | 40 | 80 | 69.6 and 0.43 GB | 8 and 0.1 Gbit/s |",
		"| 1,000,000 jobs/s, each alone | 100 | 200 |",
		"| 1,000,000 exact checks/s of four limits, in batches of 64 | 10 | 20 | - |",
		"| 1,000,000 scopes, none of them full | 0 | 1 | 0.12 and 0.06 GB | - |",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is not in\n%s", want, text)
		}
	}
}

func TestBadCostsAreNamed(t *testing.T) {
	t.Parallel()
	_, err := readCosts("| `job_us` | 0 |\n| `job_us` | 1 |\n| `tea` | 1 |\n")
	for _, want := range []string{"job_us is 0", "job_us is no cost, or stands there twice", "tea is no cost", "bucket is missing"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q is not in %v", want, err)
		}
	}
}
