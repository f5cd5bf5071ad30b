package store

import (
	"flag"
	"testing"

	"github.com/headgate/headgate/internal/redistest"
)

func TestMain(m *testing.M) {
	if err := flag.Set("rapid.checks", halfChecks); err != nil { // a default, before the command line is read
		panic(err)
	}
	flag.Parse()
	redistest.Main(m)
}
