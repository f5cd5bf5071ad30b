package crash_test

import (
	"os"
	"testing"

	"github.com/headgate/headgate/internal/redistest"
)

// TestMain runs the tests, or one role of a test that runs this binary again as a process of its own.
func TestMain(m *testing.M) {
	if role := os.Getenv(roleVariable); role != "" {
		os.Exit(playRole(role))
	}
	redistest.Main(m)
}
