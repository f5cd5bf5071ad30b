package house

import (
	"path/filepath"
	"strings"
	"testing"
)

// mostLines is how long the map of the design may be: what tells more belongs on a page of its own.
const mostLines = 250

// TestTheDesignIsAMap: docs/DESIGN.md is short, and leads to each page below it.
func TestTheDesignIsAMap(t *testing.T) {
	t.Parallel()
	root := filepath.Join("..", "..")
	openFolders(t, root)
	all := pages(t, root)
	text := ""
	for _, p := range all {
		if p.path == "docs/DESIGN.md" {
			text = p.text
		}
	}
	if n := strings.Count(text, "\n"); n == 0 || n > mostLines {
		t.Errorf("docs/DESIGN.md has %d lines, of %d", n, mostLines)
	}
	for _, p := range all {
		below, ok := strings.CutPrefix(p.path, "docs/")
		if ok && (strings.HasPrefix(below, "design/") || strings.HasPrefix(below, "perf/")) && !strings.Contains(text, "]("+below) {
			t.Errorf("docs/DESIGN.md does not lead to %s", p.path)
		}
	}
}
