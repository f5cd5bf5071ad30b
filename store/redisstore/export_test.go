package redisstore

import (
	"fmt"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/headgate/headgate/lua"
)

// What the conformance suite needs, which knows the partition in memory as well.
var (
	NewStore = newStore
	Lower    = lower
	Check    = check
	Number   = number
)

func number(tb testing.TB, text string) int {
	tb.Helper()
	n, err := strconv.Atoi(text)
	check(tb, err)
	return n
}

func check(tb testing.TB, err error) {
	tb.Helper()
	if err != nil {
		tb.Fatal(err)
	}
}

func textOf(script lua.Script) string {
	text, _ := script.Eval()
	return text
}

// lower changes a bound where it stands in the scripts.
func lower(t *testing.T, scripts lua.Library, where string, from, to int) {
	t.Helper()
	found := false
	for name, assembled := range scripts {
		before := textOf(assembled())
		text := strings.ReplaceAll(before, fmt.Sprintf(where, from), fmt.Sprintf(where, to))
		found = found || text != before
		scripts[name] = sync.OnceValue(func() lua.Script { return lua.NewScript(text) })
	}
	if !found {
		t.Fatalf("no script has "+where, from)
	}
}
