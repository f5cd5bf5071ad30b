package house

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// largestTracked is the size in bytes that no tracked file exceeds: everyone who clones takes all of them, of all commits.
const largestTracked = 256 << 10

// TestNothingBuiltIsTracked: what a build or a run leaves behind in the tree stays out of commits.
func TestNothingBuiltIsTracked(t *testing.T) {
	t.Parallel()
	root := filepath.Join("..", "..")
	if _, err := os.Stat(filepath.Join(root, ".git")); err != nil {
		t.Skip("no clone: an archive of the source has no list of what is tracked")
	}
	// Whose folder it is matters to git, where another user runs this, and not to a list.
	listed, err := exec.CommandContext(t.Context(), "git", "-c", "safe.directory=*", "-C", root, "ls-files", "-z").Output()
	if err != nil {
		t.Fatalf("git ls-files: %v", err)
	}
	paths := strings.Split(strings.TrimSuffix(string(listed), "\x00"), "\x00")
	if len(paths) < 100 {
		t.Fatalf("git lists %d files: is this the root of the house?", len(paths))
	}
	for _, path := range paths {
		info, err := os.Lstat(filepath.Join(root, path))
		if os.IsNotExist(err) {
			continue // Deleted, and not yet committed.
		}
		if err != nil {
			t.Fatal(err)
		}
		if info.Size() > largestTracked {
			t.Errorf("%s is tracked and has %d bytes, over %d: was it built? git rm --cached it, and name it in .gitignore", path, info.Size(), largestTracked)
		}
	}
}
