package embedded_test

import (
	"testing"

	"github.com/redis/go-redis/v9/logging"

	"github.com/headgate/headgate/internal/redistest"
)

func TestMain(m *testing.M) {
	logging.Disable() // A line to stderr for each failed dial, and failed dials are what is tested.
	redistest.Main(m)
}
