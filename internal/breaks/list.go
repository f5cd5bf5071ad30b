package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// fault is one deliberate change of one file.
type fault struct {
	area, name, file, says string
	// test is the arguments of `go test` that must end in red, as a shell's words.
	test []string
	// survives is why no test can tell the fault; test is empty then.
	survives string
	from, to string
}

// id names the fault among those of all areas.
func (f *fault) id() string { return f.area + "/" + f.name }

// broken returns the file's text with the fault in it.
func (f *fault) broken(root string) ([]byte, error) {
	text, err := os.ReadFile(filepath.Join(root, f.file))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", f.id(), err)
	}
	if n := strings.Count(string(text), f.from); n != 1 {
		return nil, fmt.Errorf("%s: its text stands %d times in %s, want once", f.id(), n, f.file)
	}
	return []byte(strings.Replace(string(text), f.from, f.to, 1)), nil
}

// readFaults reads the lists of all areas, in the order of their names.
func readFaults(folder string) ([]fault, error) {
	files, err := filepath.Glob(filepath.Join(folder, "*.txt"))
	if err != nil {
		return nil, fmt.Errorf("list breaks: %w", err)
	}
	slices.Sort(files)
	var faults []fault
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			return nil, fmt.Errorf("read breaks: %w", err)
		}
		area := strings.TrimSuffix(filepath.Base(file), ".txt")
		for block := range strings.SplitSeq("\n"+string(text), "\n====") {
			if strings.TrimSpace(block) == "" {
				continue
			}
			f, err := parseFault(area, block)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", file, err)
			}
			faults = append(faults, f)
		}
	}
	return faults, nil
}

// parseFault reads one block.
func parseFault(area, block string) (fault, error) {
	head, change, ok := strings.Cut(block, "\n--- from\n")
	from, to, also := strings.Cut(change, "\n--- to")
	if !ok || !also {
		return fault{}, fmt.Errorf("a block without '--- from' and '--- to':\n%s", block)
	}
	f := fault{area: area, from: from, to: strings.TrimSuffix(strings.TrimPrefix(to, "\n"), "\n")}
	for line := range strings.SplitSeq(strings.TrimSpace(head), "\n") {
		key, value, _ := strings.Cut(line, ":")
		value = strings.TrimSpace(value)
		var err error
		switch key {
		case "name":
			f.name = value
		case "file":
			f.file = value
		case "says":
			f.says = value
		case "test":
			f.test, err = words(value)
		case "survives":
			f.survives = value
		default:
			err = fmt.Errorf("line %q: want name, file, says, test or survives", line)
		}
		if err != nil {
			return fault{}, err
		}
	}
	if f.name == "" || f.file == "" || f.says == "" || f.from == "" || (len(f.test) == 0) == (f.survives == "") {
		return fault{}, fmt.Errorf("break %q: wants name, file, says, a text to change, and either test or survives", f.name)
	}
	if slices.ContainsFunc(f.test, func(word string) bool { return strings.Contains(word, "Golden") }) {
		return fault{}, fmt.Errorf("break %q: a golden goes red at every change and tells nothing", f.name)
	}
	return f, nil
}

// words splits at spaces outside single quotes.
func words(line string) ([]string, error) {
	var out []string
	for i, part := range strings.Split(line, "'") {
		if i%2 == 1 {
			out = append(out, part)
			continue
		}
		out = append(out, strings.Fields(part)...)
	}
	if strings.Count(line, "'")%2 == 1 {
		return nil, fmt.Errorf("a quote without its end: %s", line)
	}
	return out, nil
}
