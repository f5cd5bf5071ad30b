package main

import "testing"

// TestEachBreakStandsInItsFile holds the list to the code: a change of a line that a break changes, too, changes the break.
func TestEachBreakStandsInItsFile(t *testing.T) {
	t.Parallel()
	faults, err := readFaults("list")
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	for i := range faults {
		f := &faults[i]
		if seen[f.id()] {
			t.Errorf("two breaks have the name %s", f.id())
		}
		seen[f.id()] = true
		text, err := f.broken("../..")
		if err != nil {
			t.Error(err)
		} else if f.from == f.to || len(text) == 0 {
			t.Errorf("%s changes nothing", f.id())
		}
	}
	if len(faults) == 0 {
		t.Error("there is no break in the list")
	}
}

func TestAFaultIsReadAsItIsWritten(t *testing.T) {
	t.Parallel()
	f, err := parseFault("worker", "\nname: x\nfile: a/b.go\nsays: it: breaks\ntest: ./a -run '^Test A$'\n--- from\nif a {\n\tb()\n--- to\nif !a {\n")
	if err != nil {
		t.Fatal(err)
	}
	if f.id() != "worker/x" || f.says != "it: breaks" || len(f.test) != 3 || f.test[2] != "^Test A$" || f.from != "if a {\n\tb()" || f.to != "if !a {" {
		t.Errorf("read %+v", f)
	}
	for _, bad := range []string{
		"name: x", "name: x\nfile: a\nsays: s\n--- from\na\n--- to\nb", "name: x\nfile: a\nsays: s\ntest: ./lua -run TestGolden\n--- from\na\n--- to\nb",
		"name: x\nfile: a\nsays: s\ntest: ./a -run 'x\n--- from\na\n--- to\nb", "who: x\n--- from\na\n--- to\nb",
	} {
		if _, err := parseFault("worker", bad); err == nil {
			t.Errorf("read a block that is none:\n%s", bad)
		}
	}
}
