package house

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

const (
	drawnBegin = "<!-- go test ./internal/house -run Drawn -update -->\n"
	drawnEnd   = "<!-- end of the floors -->"
)

// TestTheHouseIsDrawn: docs/DESIGN.md has each room on its floor, as this package holds them, with the first sentence of its doc.
func TestTheHouseIsDrawn(t *testing.T) {
	t.Parallel()
	root := filepath.Join("..", "..")
	openFolders(t, root)
	name := filepath.Join(root, "docs", "DESIGN.md")
	page, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, begins := strings.Cut(string(page), drawnBegin)
	old, after, ends := strings.Cut(rest, drawnEnd)
	if !begins || !ends {
		t.Fatalf("docs/DESIGN.md has nothing between %q and %q", drawnBegin, drawnEnd)
	}
	units := list(t, root)
	for _, path := range beside {
		units = append(units, list(t, filepath.Join(root, path))...)
	}
	drawn := drawing(units)
	if *update {
		if err := os.WriteFile(name, []byte(before+drawnBegin+drawn+drawnEnd+after), 0o600); err != nil {
			t.Fatal(err)
		}
		return
	}
	if old != drawn {
		t.Error("the floors in docs/DESIGN.md are not those of floors_test.go, or of the packages' docs: go test ./internal/house -run Drawn -update")
	}
}

// drawing is a table of the rooms, the highest floor first and the leaves last.
func drawing(units []unit) string {
	all := slices.Clone(rooms)
	slices.SortStableFunc(all, func(a, b room) int {
		if a.leaf != b.leaf {
			return cmp.Compare(leafLast(a), leafLast(b))
		}
		return cmp.Or(b.floor-a.floor, strings.Compare(a.path, b.path))
	})
	var out strings.Builder
	out.WriteString("| floor | package | |\n| --- | --- | --- |\n")
	for _, r := range all {
		floor := strconv.Itoa(r.floor)
		if r.leaf {
			floor = "leaf"
		}
		fmt.Fprintf(&out, "| %s | `%s` | %s |\n", floor, cmp.Or(r.path, "headgate"), synopsis(r, units))
	}
	return out.String()
}

func leafLast(r room) int {
	if r.leaf {
		return 1
	}
	return 0
}

// synopsis is what the package of a room says of itself in its first sentence, or the first one below it that says something.
func synopsis(r room, units []unit) string {
	for _, u := range units { // go list names a package before those below it.
		path, ok := within(u.ImportPath)
		if home, found := roomOf(path); ok && found && home.path == r.path && u.Doc != "" {
			text := strings.TrimSuffix(u.Doc, ".")
			for _, word := range []string{"Package " + u.Name + " ", "Command " + filepath.Base(u.ImportPath) + " "} {
				text = strings.TrimPrefix(text, word)
			}
			return strings.ReplaceAll(text, "|", `\|`)
		}
	}
	return ""
}
