package redisstore

import (
	"fmt"
	"hash/crc32"
	"strconv"
	"strings"
	"testing"

	"github.com/headgate/headgate/lua"
)

// What the conformance suite needs, which knows the partition in memory as well.
var (
	NewStore  = newStore
	Lower     = lower
	TextsOnly = textsOnly
	Check     = check
	Number    = number
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

// lower changes a bound where it stands in the scripts, and gives the library with it a name of its own.
func lower(t *testing.T, scripts lua.Library, where string, from, to int) {
	t.Helper()
	found := false
	lowered := func(text string) string {
		changed := strings.ReplaceAll(text, fmt.Sprintf(where, from), fmt.Sprintf(where, to))
		found = found || changed != text
		return changed
	}
	var library, code string // They are the same of all scripts.
	for name, assembled := range scripts {
		script := assembled()
		changed := lua.NewScript(lowered(textOf(script)))
		if script.Function != "" {
			if code == "" {
				before := strings.TrimSuffix(script.Function, "_"+name)
				code = lowered(script.Code())
				library = fmt.Sprintf("%s%x", lua.LibraryPrefix, crc32.ChecksumIEEE([]byte(code)))
				code = strings.ReplaceAll(code, before, library)
			}
			changed.Function, changed.Code = library+"_"+name, func() string { return code }
		}
		scripts[name] = func() lua.Script { return changed }
	}
	if !found {
		t.Fatalf("no script has "+where, from)
	}
}

// textsOnly leaves scripts the way of a Redis without functions.
func textsOnly(scripts lua.Library) {
	for name, assembled := range scripts {
		text := lua.NewScript(textOf(assembled()))
		scripts[name] = func() lua.Script { return text }
	}
}
