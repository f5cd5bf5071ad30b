package house

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// page is a text for people, with what it says that a machine can check.
type page struct {
	path string // below the root of the house
	text string
}

var (
	fence      = regexp.MustCompile("(?s)```.*?\n```")
	code       = regexp.MustCompile("`[^`\n]+`")
	link       = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	testName   = regexp.MustCompile(`\b(?:Test|Fuzz|Example|Benchmark)[A-Z]\w+`)
	testFunc   = regexp.MustCompile(`(?m)^func ((?:Test|Fuzz|Example|Benchmark)\w+)`)
	makeTarget = regexp.MustCompile(`\bmake ([a-z][a-z-]+)`)
	metric     = regexp.MustCompile(`\bheadgate_[a-z_]+[a-z]`)
	slug       = regexp.MustCompile(`[^\p{L}\p{N}_ -]`)
)

// pages are the texts of the house. Those of the changelog name what there was once.
func pages(t *testing.T, root string) (all []page) {
	t.Helper()
	for _, pattern := range []string{"*.md", "docs/*.md", "docs/*/*.md"} {
		paths, err := filepath.Glob(filepath.Join(root, filepath.FromSlash(pattern)))
		if err != nil {
			t.Fatal(err)
		}
		for _, path := range paths {
			text, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			below, err := filepath.Rel(root, path)
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, page{filepath.ToSlash(below), string(text)})
		}
	}
	return all
}

// TestPagesNameWhatThereIs: links, files, tests, make's targets and metrics that the pages name are there.
func TestPagesNameWhatThereIs(t *testing.T) {
	t.Parallel()
	root := filepath.Join("..", "..")
	openFolders(t, root)
	h := survey(t, root)
	all := pages(t, root)
	if len(all) < 8 {
		t.Errorf("%d pages were found", len(all))
	}
	for _, p := range all {
		for _, fault := range h.faults(t, p) {
			t.Errorf("%s: %s", p.path, fault)
		}
	}
}

// house is what pages may name.
type house struct {
	root     string
	tests    []string
	makefile string
	sources  string // all Go files that are no tests
}

func survey(t *testing.T, root string) (h house) {
	t.Helper()
	h.root = root
	makefile, err := os.ReadFile(filepath.Join(root, "Makefile"))
	if err != nil {
		t.Fatal(err)
	}
	h.makefile = string(makefile)
	var sources strings.Builder
	err = filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && (entry.Name() == ".git" || entry.Name() == "bin"):
			return filepath.SkipDir
		case filepath.Ext(path) != ".go":
			return nil
		}
		text, err := os.ReadFile(path)
		if strings.HasSuffix(path, "_test.go") {
			for _, found := range testFunc.FindAllSubmatch(text, -1) {
				h.tests = append(h.tests, string(found[1]))
			}
		} else {
			sources.Write(text)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	h.sources = sources.String()
	return h
}

// faults tells what a page names that is not there.
func (h house) faults(t *testing.T, p page) (all []string) {
	t.Helper()
	prose := fence.ReplaceAllString(p.text, "")
	for _, found := range link.FindAllStringSubmatch(prose, -1) {
		if fault := h.broken(t, p, found[1]); fault != "" {
			all = append(all, fault)
		}
	}
	all = append(all, doubled(prose)...)
	if p.path == "CHANGELOG.md" {
		return all
	}
	for _, name := range testName.FindAllString(p.text, -1) {
		if !slices.ContainsFunc(h.tests, func(test string) bool { return strings.HasPrefix(test, name) }) && name != "TestName" {
			all = append(all, "there is no test "+name)
		}
	}
	for _, found := range makeTarget.FindAllStringSubmatch(strings.Join(code.FindAllString(prose, -1), " "), -1) {
		if !strings.Contains(h.makefile, "\n"+found[1]+":") {
			all = append(all, "there is no make "+found[1])
		}
	}
	for _, name := range metric.FindAllString(p.text, -1) {
		if !strings.Contains(h.sources, strings.TrimPrefix(strings.TrimPrefix(name, "headgate_"), "limiter_")) { // They are made with these as namespace.
			all = append(all, "there is no metric "+name)
		}
	}
	for _, span := range code.FindAllString(prose, -1) {
		for word := range strings.FieldsSeq(strings.Trim(span, "`")) {
			if path, looks := h.path(word); looks && !h.exists(t, path) {
				all = append(all, "there is no "+word)
			}
		}
	}
	return all
}

// path tells whether a word looks like the path of a file or a folder of the house: it begins with a folder that is there.
func (h house) path(word string) (path string, looks bool) {
	word = strings.TrimSuffix(strings.TrimPrefix(word, "./"), "/")
	if !regexp.MustCompile(`^[\w.-]+(/[\w.-]+)+$`).MatchString(word) {
		return "", false
	}
	first, _, _ := strings.Cut(word, "/")
	info, err := os.Stat(filepath.Join(h.root, first))
	return word, err == nil && info.IsDir() && first != "bin" && !strings.Contains(word, "NAME")
}

func (h house) exists(t *testing.T, path string) bool {
	t.Helper()
	_, err := os.Stat(filepath.Join(h.root, filepath.FromSlash(path)))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	return err == nil
}

// broken tells what is wrong with a link to this house. Others are not asked for.
func (h house) broken(t *testing.T, p page, target string) string {
	t.Helper()
	if strings.Contains(target, "://") {
		return ""
	}
	file, anchor, _ := strings.Cut(target, "#")
	path := p.path
	if file != "" {
		path = filepath.ToSlash(filepath.Join(filepath.Dir(p.path), file))
	}
	if !h.exists(t, path) {
		return "the link " + target + " leads nowhere"
	}
	if anchor == "" {
		return ""
	}
	text, err := os.ReadFile(filepath.Join(h.root, path))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		if strings.HasPrefix(line, "#") && anchor == anchorOf(line) {
			return ""
		}
	}
	return "the link " + target + " leads to no heading"
}

// anchorOf is the name that a heading has in links.
func anchorOf(heading string) string {
	text := strings.ToLower(strings.TrimSpace(strings.TrimLeft(heading, "#")))
	return strings.ReplaceAll(slug.ReplaceAllString(text, ""), " ", "-")
}

// doubled names lines that begin alike and rows of one table that have the same name: what is left of two changes of a
// page that were put together.
func doubled(text string) (all []string) {
	const alike = 40 // bytes
	lines, rows := map[string]bool{}, map[string]bool{}
	for line := range strings.Lines(text) {
		first, _, row := strings.Cut(strings.TrimPrefix(line, "| "), " | ")
		row = row && strings.HasPrefix(line, "| ")
		switch {
		case !row && len(line) > alike && !strings.HasPrefix(line, "    "):
			if lines[line[:alike]] {
				all = append(all, "two lines begin alike: "+strings.TrimSpace(line))
			}
			lines[line[:alike]] = true
		case row && len(first) > len("Redis"): // Shorter ones are groups of rows.
			if rows[first] {
				all = append(all, "two rows of "+first)
			}
			rows[first] = true
		}
		if !row {
			clear(rows)
		}
	}
	return all
}
