package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/headgate/headgate/internal/redistest"
)

// TestWhatIsKeptOfTheGlobalLimitIsToldAndEdited: in a dry run, in force, in the limit, and in what explain says of others.
func TestWhatIsKeptOfTheGlobalLimitIsToldAndEdited(t *testing.T) {
	t.Parallel()
	on := []string{"--redis", redistest.Shared(t).Addr(), "--prefix", redistest.Prefix(t)}
	says := func(code int, want string, args ...string) {
		t.Helper()
		var out, notes bytes.Buffer
		if got := execute(t.Context(), append(args, on...), strings.NewReader(""), &out, &notes); got != code || !strings.Contains(out.String()+notes.String(), want) {
			t.Errorf("%v: exit code %d, and it does not say %q:\n%s%s", args, got, want, out.String(), notes.String())
		}
	}
	file := filepath.Join(t.TempDir(), "kept.json")
	write := func(text string) {
		must(t, os.WriteFile(file, []byte(text), 0o600))
	}
	says(0, "", "limit", "set", "global", "--tokens", "1000", "--burst", "500")
	write(`{"global_reserved": {"classes": ["urgent"], "percent": 20}}`)
	says(1, `global_reserved.classes "urgent": allowed is a class of a queue`, "policy", "merge", file)
	write(`{"global": {"tokens": 1000, "per": "1s", "burst": 500}, "global_reserved": {"classes": ["high"], "percent": 20}}`)
	says(0, `/global_reserved/percent 20`, "policy", "dry-run", file)
	says(3, `/global_reserved/classes ["high"]`, "policy", "diff", file)
	says(0, "holds 500", "limit", "get", "global")
	says(0, "", "policy", "merge", file)
	says(0, "20% of it are kept for high: others get 1000 tokens in 1.25s and hold 400", "limit", "get", "global")
	says(0, `"percent": 20`, "limit", "get", "global", "--json")
	says(0, "20% of global are kept for high: others have 400 of 400 tokens left", "explain", "scope", "acme:mail:low")
	says(2, "global_reserved (there): allowed is none without a global limit", "limit", "delete", "global")
}
