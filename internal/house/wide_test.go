package house

import (
	"bytes"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// What a package may be at most: so many files beside its tests, imports of packages of the house, packages on the longest way down, and
// that part of all lines in per cent.
var most = width{files: 20, fan: 12, depth: 8, share: 15}

// width is how wide a package is.
type width struct{ files, fan, depth, share int }

// TestWidth holds each package to what one can take in.
func TestWidth(t *testing.T) {
	t.Parallel()
	found := widths(t, list(t, filepath.Join("..", "..")))
	for _, name := range slices.Sorted(maps.Keys(found)) {
		is := found[name].figures()
		for i, limit := range most.figures() {
			if is[i] > limit {
				t.Errorf("%s has %s, of which %d may be %d: divide it", name, found[name], is[i], limit)
			}
		}
	}
}

func (w width) figures() [4]int { return [4]int{w.files, w.fan, w.depth, w.share} }

func (w width) String() string {
	return fmt.Sprintf("%d files, %d imports of the house, a depth of %d and %d %% of the lines", w.files, w.fan, w.depth, w.share)
}

// widths measures the packages of the module, by their paths in it.
func widths(t *testing.T, units []unit) map[string]width {
	t.Helper()
	of, lines, all := map[string]unit{}, map[string]int{}, 0
	for _, u := range units {
		path, _ := within(u.ImportPath)
		of[path] = u
		for _, file := range u.GoFiles {
			text, err := os.ReadFile(filepath.Join(u.Dir, file))
			if err != nil {
				t.Fatal(err)
			}
			lines[path] += bytes.Count(text, []byte{'\n'})
		}
		all += lines[path]
	}
	found := map[string]width{}
	var measure func(path string) width
	measure = func(path string) width {
		if known, ok := found[path]; ok {
			return known
		}
		w := width{files: len(of[path].GoFiles), depth: 1, share: lines[path] * 100 / all}
		for _, imported := range of[path].Imports {
			below, ok := within(imported)
			if _, known := of[below]; !ok || !known || strings.HasPrefix(below, "vendor/") {
				continue
			}
			w.fan++
			w.depth = max(w.depth, 1+measure(below).depth)
		}
		found[path] = w
		return w
	}
	for path := range of {
		measure(path)
	}
	return found
}
