package house

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var (
	// goBlock is a block of Go in a page, with the comment before it that says where it is from.
	goBlock = regexp.MustCompile("(?m)(?:^<!-- snippet: (\\S+) (\\S+) -->\n)?^```go\n((?s:.*?))^```$")
	// regionBegin and regionEnd are the comments around a region of an example.
	regionBegin = regexp.MustCompile(`^\s*//snippet:begin (\S+)\n$`)
	regionEnd   = regexp.MustCompile(`^\s*//snippet:end\n$`)
)

// TestSnippetsAreOfTheExamples: each block of Go in a page is a region of docs/examples, which is compiled and run. With -update the
// pages are written anew. No example imports what users cannot: what tests need is in main_test.go alone.
func TestSnippetsAreOfTheExamples(t *testing.T) {
	t.Parallel()
	root := filepath.Join("..", "..")
	openFolders(t, root)
	regions := regionsOf(t, filepath.Join(root, "docs", "examples"))
	shown := map[string]bool{}
	for _, p := range pages(t, root) {
		text := goBlock.ReplaceAllStringFunc(p.text, func(block string) string {
			match := goBlock.FindStringSubmatch(block)
			name := match[1] + " " + match[2]
			want, ok := regions[name]
			switch {
			case match[1] == "":
				t.Errorf("%s: a block has no comment that says which example it is: <!-- snippet: FILE NAME -->\n%s", p.path, block)
				return block
			case !ok:
				t.Errorf("%s: docs/examples has no %s", p.path, name)
				return block
			case want != match[3] && !*update:
				t.Errorf("%s is not %s of docs/examples: run go test ./internal/house -run Snippets -update", p.path, name)
			}
			shown[name] = true
			return "<!-- snippet: " + name + " -->\n```go\n" + want + "```"
		})
		if *update && text != p.text {
			if err := os.WriteFile(filepath.Join(root, filepath.FromSlash(p.path)), []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	for name := range regions {
		if !shown[name] {
			t.Errorf("no page shows %s of docs/examples", name)
		}
	}
	if len(shown) < 10 {
		t.Errorf("%d snippets were found", len(shown))
	}
}

// regionsOf returns the regions of the Go files below a folder, each by its file and name, without the indentation of its first line.
func regionsOf(t *testing.T, folder string) map[string]string {
	t.Helper()
	regions := map[string]string{}
	for _, pattern := range []string{"*.go", "*/*.go"} {
		paths, err := filepath.Glob(filepath.Join(folder, filepath.FromSlash(pattern)))
		if err != nil {
			t.Fatal(err)
		}
		for _, path := range paths {
			text, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			file, err := filepath.Rel(folder, path)
			if err != nil {
				t.Fatal(err)
			}
			if filepath.Base(path) != "main_test.go" && strings.Contains(string(text), module+"/internal/") {
				t.Errorf("%s imports what users cannot", path)
			}
			file = filepath.ToSlash(file)
			name, indent := "", ""
			for line := range strings.Lines(string(text)) {
				if begin := regionBegin.FindStringSubmatch(line); begin != nil {
					if name != "" {
						t.Errorf("%s: %s does not end", file, name)
					}
					name, indent = file+" "+begin[1], ""
					continue
				}
				switch {
				case name == "" || regions[name] == "" && line == "\n":
				case regionEnd.MatchString(line):
					regions[name] = strings.TrimRight(regions[name], "\n") + "\n"
					name = ""
				default:
					if regions[name] == "" {
						indent = line[:len(line)-len(strings.TrimLeft(line, "\t"))]
					}
					regions[name] += strings.TrimPrefix(line, indent)
				}
			}
			if name != "" {
				t.Errorf("%s: %s does not end", file, name)
			}
		}
	}
	return regions
}
