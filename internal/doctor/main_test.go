package doctor

import (
	"flag"
	"testing"

	"github.com/headgate/headgate/internal/redistest"
)

func TestMain(m *testing.M) {
	flag.Parse()
	redistest.Main(m)
}
