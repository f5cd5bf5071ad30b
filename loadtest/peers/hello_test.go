package peers

import (
	"os/exec"
	"testing"
)

// TestHelloCompiles: the programs that docs/perf/dependencies.md measures, but for river's, which takes half a minute to compile.
func TestHelloCompiles(t *testing.T) {
	t.Parallel()
	// go-redis as `make test` compiles it, so that it is compiled once.
	out, err := exec.CommandContext(t.Context(), "go", "vet", "-gcflags=github.com/redis/go-redis/v9=-l", "./testdata/hello/headgate", "./testdata/hello/asynq").CombinedOutput()
	if err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}
