package embedded_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"
	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/redistest"
)

// TestParity runs each script of testdata/parity.txt on an empty Redis and on an empty miniredis and holds the page
// to what they answer; `go test ./internal/embedded -run Parity -rewrite` writes it anew. KEYS are k, k2 and k3.
func TestParity(t *testing.T) {
	server := redistest.Start(t, redistest.Options{}) // First: openMiniredis takes it out of PATH.
	onServer, onMini := server.Client(t), patient(t, openMiniredis(t))
	datadriven.RunTest(t, "testdata/parity.txt", func(t *testing.T, data *datadriven.TestData) string {
		t.Helper()
		if data.Cmd != "eval" {
			t.Fatalf("unknown command %q", data.Cmd)
		}
		ofRedis, ofMini := evalEmpty(t, onServer, data.Input), evalEmpty(t, onMini, data.Input)
		if ofRedis == ofMini {
			return ofRedis + "\n"
		}
		return fmt.Sprintf("redis:     %s\nminiredis: %s\n", ofRedis, ofMini)
	})
}

// TestEachScriptCompilesInProcess: Lua in Go has room for fewer local variables than Redis's own.
func TestEachScriptCompilesInProcess(t *testing.T) {
	scripts, err := filepath.Glob("../../lua/testdata/*.lua")
	if err != nil || len(scripts) == 0 {
		t.Fatalf("%d scripts: %v", len(scripts), err)
	}
	client := patient(t, openMiniredis(t))
	for _, script := range scripts {
		text, err := os.ReadFile(script)
		if err != nil {
			t.Fatal(err)
		}
		// It needs arguments: that it fails is no fault of what is asked here.
		if err = client.Eval(t.Context(), string(text), []string{"hg{0}:state"}).Err(); err != nil && strings.Contains(err.Error(), "compile error") {
			t.Errorf("%s: %v", script, err)
		}
	}
}

// evalEmpty runs a script on an empty database and returns its reply as text.
func evalEmpty(t *testing.T, client *redis.Client, script string) string {
	t.Helper()
	if err := client.FlushAll(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}
	reply, err := client.Eval(t.Context(), script, []string{"k", "k2", "k3"}, "a", "b").Result()
	switch {
	case errors.Is(err, redis.Nil):
		return "nil"
	case err != nil:
		// What follows names the script's hash and line, which differ with the text.
		text, _, _ := strings.Cut(err.Error(), " script: ")
		text, _, _ = strings.Cut(text, " stack traceback:")
		text, _, _ = strings.Cut(text, " 0x") // So does a table's address.
		return "error " + strings.Join(strings.Fields(text), " ")
	}
	return asText(reply)
}

// asText writes a reply as Lua would write the table.
func asText(reply any) string {
	switch v := reply.(type) {
	case nil:
		return "nil"
	case string:
		return fmt.Sprintf("%q", v)
	case []any:
		parts := make([]string, len(v))
		for i, part := range v {
			parts[i] = asText(part)
		}
		return "{" + strings.Join(parts, ", ") + "}"
	}
	return fmt.Sprint(reply)
}
