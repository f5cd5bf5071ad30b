package main

import (
	"os"
	"slices"
	"strings"
	"testing"
)

// TestABreakThatDoesNotCompileIsFound among others of its file and of other files, all of which do.
func TestABreakThatDoesNotCompileIsFound(t *testing.T) {
	t.Chdir(t.TempDir())
	for file, text := range map[string]string{
		"go.mod": "module sound\n", "a.go": "package sound\n\nfunc a(n int) bool { return n > 1 && n < 9 }\n", "b.go": "package sound\n\nfunc b() bool { return a(2) }\n",
	} {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	faults := []fault{
		{area: "x", name: "low", file: "a.go", from: "n > 1", to: "n > 2"},
		{area: "x", name: "alone", file: "b.go", from: "a(2)", to: "a()"},
		{area: "x", name: "high", file: "a.go", from: "n < 9", to: "n < 8"},
	}
	if parts := apart(faults); len(parts) != 2 || len(parts[0]) != 2 || parts[1][0].name != "high" {
		t.Errorf("divided %+v", parts)
	}
	bad, err := builds(t.Context(), t.TempDir(), faults[:2])
	if err != nil || len(bad) != 1 || !strings.HasPrefix(bad[0], "x/alone: ") || !strings.Contains(bad[0], "not enough arguments") {
		t.Errorf("found %q, %v", bad, err)
	}
	if err := buildAll(t.Context(), t.TempDir(), slices.Concat(faults[:1], faults[2:])); err != nil {
		t.Error(err)
	}
	if err := buildAll(t.Context(), t.TempDir(), faults); err == nil || !strings.Contains(err.Error(), "1 of 3 breaks do not compile") {
		t.Errorf("said %v", err)
	}
}

// TestATestThatWasNeverAboutTheBreak tells what did not compile, and a script that names what is not there, from a test that went red.
func TestATestThatWasNeverAboutTheBreak(t *testing.T) {
	t.Parallel()
	for said, want := range map[string]bool{
		"FAIL	./a [build failed]": true, "ERR Error compiling function: 1: '=' expected": true, "ERR Script attempted to access nonexistent global variable 'x'": true,
		"--- FAIL: TestA\n    a_test.go:1: ERR user_script:1: attempt to index a nil value": false, "ok  	./a": false,
	} {
		if unbuilt(said) != want {
			t.Errorf("%q: said %v", said, !want)
		}
	}
}
