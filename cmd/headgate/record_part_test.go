package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/gofrs/flock"

	"github.com/headgate/headgate/cmd/headgate/internal/cli"
	"github.com/headgate/headgate/policy"
)

// recordPlant is a plant in which some of 600 tenants have a record, and a file of other records for all of them.
func recordPlant(t *testing.T) (p *plant, file, had string) {
	t.Helper()
	p = newPlant(t)
	p.in(cli.ExitOK, `{"tenant_records":true}`, "policy merge -")
	var before, lines strings.Builder
	for i := range 600 {
		if i%3 == 0 {
			fmt.Fprintf(&before, "{\"tenant\":\"t%d\",\"record\":{\"priority_weights\":{\"high\":%d}}}\n", i, i%9+1)
		}
		fmt.Fprintf(&lines, "{\"tenant\":\"t%d\",\"record\":{\"tier\":\"premium\"}}\n", i)
	}
	p.in(cli.ExitOK, before.String(), "record import -")
	file = filepath.Join(t.TempDir(), "records.jsonl")
	writeText(t, file, lines.String())
	return p, file, before.String()
}

func writeText(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// premium returns who has the tier of the file by now.
func (p *plant) premium() (all []string) {
	for _, line := range sortedLines(p.run(cli.ExitOK, "record export").stdout) {
		if tenant, is := strings.CutSuffix(line, `","record":{"tier":"premium"}}`); is {
			all = append(all, strings.TrimPrefix(tenant, `{"tenant":"`))
		}
	}
	return all
}

// inPart returns who is in by the hash of a policy's roll-out.
func inPart(id string, percent int) (all []string) {
	part := policy.Rollout{ID: id, Percent: percent}
	for i := range 600 {
		if tenant := fmt.Sprint("t", i); part.Has(tenant) {
			all = append(all, tenant)
		}
	}
	slices.Sort(all)
	return all
}

// TestRecordsGoOutInParts: each share adds the tenants that a roll-out of the policy would, the others wait, and one file takes all back.
func TestRecordsGoOutInParts(t *testing.T) {
	t.Parallel()
	p, file, had := recordPlant(t)
	undo := filepath.Join(t.TempDir(), "before.jsonl")
	line := "record import " + file + " --undo " + undo + " --reason plan"
	told := func(percent int, dry string, stored, same, later int) {
		t.Helper()
		got := p.object(cli.ExitOK, fmt.Sprint(line, " --percent ", percent, dry))
		for key, want := range map[string]int{"records": 600, "stored": stored, "same": same, "later": later, "percent": percent} {
			if got[key] != float64(want) {
				t.Errorf("%d %%%s: %s is %v, want %d", percent, dry, key, got[key], want)
			}
		}
	}
	before := 0
	for _, percent := range []int{5, 25, 25, 100} {
		want := inPart("records", percent)
		in := len(want)
		told(percent, " --dry-run", in-before, before, 600-in)
		if got := p.premium(); len(got) != before {
			t.Errorf("after a dry run %d have it, not %d", len(got), before)
		}
		told(percent, "", in-before, before, 600-in)
		if got := p.premium(); !slices.Equal(got, want) {
			t.Errorf("at %d %%: %v, want %v", percent, got, want)
		}
		before = in
	}
	audit := p.run(cli.ExitOK, "audit --json").stdout
	for _, reason := range []string{"plan (5 % of the tenants)", "plan (25 % of the tenants)", "plan (100 % of the tenants)"} {
		if strings.Count(audit, reason) != 1 {
			t.Errorf("%s is not one entry of the audit: %s", reason, audit)
		}
	}
	if text, err := os.ReadFile(undo); err != nil || strings.Count(string(text), "\n") != 600 {
		t.Errorf("kept for 600 tenants: %d lines, %v", strings.Count(string(text), "\n"), err)
	}
	p.run(cli.ExitOK, "record import "+undo+" --reason back")
	if out := p.run(cli.ExitOK, "record export").stdout; !slices.Equal(sortedLines(out), sortedLines(had)) {
		t.Errorf("taken back it is %d bytes, and was %d", len(out), len(had))
	}
}

// TestRecordsOfAnotherPart: who is in first is told by --id, as of a roll-out of the policy.
func TestRecordsOfAnotherPart(t *testing.T) {
	t.Parallel()
	p, file, _ := recordPlant(t)
	want := inPart("june", 10)
	out := p.run(cli.ExitOK, "record import "+file+" --percent 10 --id june").stdout
	if want := fmt.Sprintf("10 %% of the tenants: %d records stored, 0 were already as in the file, %d are left for later\n", len(want), 600-len(want)); out != want {
		t.Errorf("%q, want %q", out, want)
	}
	if got := p.premium(); !slices.Equal(got, want) || slices.Equal(want, inPart("records", 10)) {
		t.Errorf("%v, want %v", got, want)
	}
}

// TestAnUndoFileTellsOfTenantsThatWereChanged alone, also when an import was ended in the middle of a line of it.
func TestAnUndoFileTellsOfTenantsThatWereChanged(t *testing.T) {
	t.Parallel()
	p, _, had := recordPlant(t)
	undo := filepath.Join(t.TempDir(), "before.jsonl")
	first, same := strings.SplitAfter(had, "\n")[0], strings.SplitAfter(had, "\n")[1]
	lines := `{"tenant":"new","record":{"tier":"basic"}}` + "\n" + `{"tenant":"t0","record":{}}` + "\n" + same + `{"tenant":"t0","record":{"tier":"basic"}}` + "\n"
	writeText(t, undo, `{"tenant":"old","record":{}}`+"\n"+`{"tenant":"t0","rec`)
	p.in(cli.ExitOK, lines, "record import - --undo "+undo)
	want := `{"tenant":"old","record":{}}` + "\n" + `{"tenant":"new","record":{}}` + "\n" + first
	if text, err := os.ReadFile(undo); err != nil || string(text) != want {
		t.Errorf("%s, %v, want %s", text, err, want)
	}
	if out := p.run(cli.ExitOK, "record get t0").stdout; !strings.Contains(out, `{"tier":"basic"}`) {
		t.Errorf("of two lines of a tenant the last counts: %s", out)
	}
	p.run(cli.ExitOK, "record import "+undo)
	p.run(cli.ExitNothing, "record get new")
	if out := p.run(cli.ExitOK, "record export").stdout; !slices.Equal(sortedLines(out), sortedLines(had)) {
		t.Errorf("taken back: %s", out)
	}
	whole := strings.TrimSuffix(want, "\n")
	writeText(t, undo, whole)
	p.in(cli.ExitOK, `{"tenant":"t3","record":{}}`, "record import - --undo "+undo)
	if text, err := os.ReadFile(undo); err != nil || !strings.HasPrefix(string(text), want+`{"tenant":"t3",`) {
		t.Errorf("a whole last line without its end: %s, %v", text, err)
	}
}

// TestOneImportAtATimeWritesToAnUndoFile: another is refused and stores nothing, and when the first has ended nothing of it is left.
func TestOneImportAtATimeWritesToAnUndoFile(t *testing.T) {
	t.Parallel()
	p, file, had := recordPlant(t)
	undo := filepath.Join(t.TempDir(), "before.jsonl")
	first := flock.New(undo + ".lock")
	if alone, err := first.TryLock(); err != nil || !alone {
		t.Fatal(alone, err)
	}
	line := "record import " + file + " --undo " + undo
	p.refuses(map[string]string{line: "--undo " + undo + ": allowed is a file to which no other import writes: one holds " + undo + ".lock"})
	if out := p.run(cli.ExitOK, "record export").stdout; !slices.Equal(sortedLines(out), sortedLines(had)) {
		t.Errorf("%s", out)
	}
	if err := first.Unlock(); err != nil {
		t.Fatal(err)
	}
	p.run(cli.ExitOK, line)
	if left, err := filepath.Glob(undo + "*"); err != nil || !slices.Equal(left, []string{undo}) {
		t.Errorf("%v, %v", left, err)
	}
}

// TestAnImportThatIsRefusedStoresNothing.
func TestAnImportThatIsRefusedStoresNothing(t *testing.T) {
	t.Parallel()
	p, file, had := recordPlant(t)
	dir := t.TempDir()
	notes := filepath.Join(dir, "notes.txt")
	writeText(t, notes, "buy milk\n")
	line := "record import " + file
	p.refuses(map[string]string{
		line + " --percent 0":                    "invalid --percent 0: allowed is 1 to 100",
		line + " --percent 101":                  "invalid --percent 101: allowed is 1 to 100",
		line + " --percent -1 --dry-run":         "invalid --percent -1: allowed is 1 to 100",
		line + " --percent 5 --id a:b":           `invalid id "a:b"`,
		line + " --undo " + dir:                  "--undo " + dir + ": allowed is a file that can be written",
		line + " --undo " + dir + "/no/before":   "allowed is a file that can be written",
		line + " --undo " + notes:                "line 1 is no record",
		line + " --undo " + file:                 "another file than that of the records",
		line + " --undo /dev/null --percent 100": "a file that can be added to",
	})
	if text, err := os.ReadFile(notes); err != nil || string(text) != "buy milk\n" {
		t.Errorf("%s, %v", text, err)
	}
	if out := p.run(cli.ExitOK, "record export").stdout; !slices.Equal(sortedLines(out), sortedLines(had)) {
		t.Errorf("%s", out)
	}
}

// TestTenantsOfATierAreListedByTheirRecords, where the policy names them, where it does not, and where it has no such tier.
func TestTenantsOfATierAreListedByTheirRecords(t *testing.T) {
	t.Parallel()
	p := newPlant(t)
	p.in(cli.ExitOK, `{"tenant_records":true,"tenants":{"ann":{"tier":"premium"},"bob":{"tier":"premium"}}}`, "policy merge -")
	if out := p.run(cli.ExitOK, "tenant list").stdout; strings.Contains(out, "its record") {
		t.Errorf("a column of nothing: %s", out)
	}
	var lines strings.Builder
	for i := range 1500 {
		fmt.Fprintf(&lines, "{\"tenant\":\"t%d\",\"record\":{\"tier\":\"premium\"}}\n", i)
	}
	p.in(cli.ExitOK, lines.String()+`{"tenant":"bob","record":{"tier":"basic"}}`+"\n"+`{"tenant":"rare","record":{"tier":"basic"}}`, "record import -")
	if out := p.run(cli.ExitOK, "tenant list --tier basic").stdout; strings.Count(out, "basic") != 4 || !strings.Contains(out, "bob") || !strings.Contains(out, "rare") || strings.Contains(out, "more:") {
		t.Errorf("%s", out)
	}
	seen, pages, line := map[string]bool{}, 0, "tenant list --tier premium"
	for {
		got := p.object(cli.ExitOK, line)
		list, _ := got["tenants"].([]any)
		for _, one := range list {
			seen[one.(map[string]any)["tenant"].(string)] = true
		}
		cursor, more := got["cursor"].(string)
		if pages++; !more {
			break
		}
		line = "tenant list --tier premium --cursor " + cursor
	}
	if len(seen) != 1501 || !seen["ann"] || seen["bob"] || pages != 2 {
		t.Errorf("%d on %d pages", len(seen), pages)
	}
	if out := p.run(cli.ExitOK, "tenant list --tier premium --limit 10").stdout; !strings.Contains(out, "more: --cursor :") {
		t.Errorf("%s", out)
	}
	p.refuses(map[string]string{
		"tenant list --limit 0":                   "invalid --limit 0: allowed is 1 to 1000",
		"tenant list --limit 1001":                "invalid --limit 1001: allowed is 1 to 1000",
		"tenant list --tier premium --cursor :no": "what the page before has told",
	})
}
