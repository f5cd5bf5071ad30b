package check

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"github.com/moby/buildkit/frontend/dockerfile/instructions"
	"github.com/moby/buildkit/frontend/dockerfile/linter"
	"github.com/moby/buildkit/frontend/dockerfile/parser"
)

// TestDockerfileIsValid parses the Dockerfile as BuildKit does, with the warnings of `docker build --check` that need no
// registry, and asks for a user that is not root in the last stage.
func TestDockerfileIsValid(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(filepath.Join("..", "..", "Dockerfile"))
	if err != nil {
		t.Fatal(err)
	}
	file, err := parser.Parse(bytes.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	for _, warning := range file.Warnings {
		t.Errorf("%s", warning.Short)
	}
	stages, _, err := instructions.Parse(file.AST, linter.New(&linter.Config{
		Warn: func(rule, _, _, message string, _ []parser.Range) { t.Errorf("%s: %s", rule, message) },
	}))
	if err != nil {
		t.Fatal(err)
	}
	last := stages[len(stages)-1]
	if len(stages) != 2 || !bytes.HasSuffix([]byte(last.BaseName), []byte(":nonroot")) {
		t.Errorf("%d stages, the last from %s", len(stages), last.BaseName)
	}
}
