package main

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/headgate/headgate/cmd/headgate/internal/cli"
)

// TestThePolicyIsDescribedWithoutRedis: schema and reference call nobody.
func TestThePolicyIsDescribedWithoutRedis(t *testing.T) {
	t.Parallel()
	out := runHeadgate(t.Context(), "policy", "schema", "--redis", "nowhere.invalid:1")
	var schema struct {
		Schema     string `json:"$schema"`
		Properties map[string]struct{ Description string }
	}
	must(t, json.Unmarshal([]byte(out.stdout), &schema))
	if out.code != cli.ExitOK || schema.Schema != "https://json-schema.org/draft/2020-12/schema" || schema.Properties["tiers"].Description == "" {
		t.Errorf("exit code %d, %q: %s%.500s", out.code, schema.Schema, out.stderr, out.stdout)
	}
	out = runHeadgate(t.Context(), "policy", "reference")
	if out.code != cli.ExitOK || !strings.Contains(out.stdout, "| `max_parked` | 1 to 10,000,000 |") {
		t.Errorf("exit code %d: %s%.500s", out.code, out.stderr, out.stdout)
	}
	if out := runHeadgate(t.Context(), "policy", "schema", "more"); out.code != cli.ExitUsage {
		t.Errorf("exit code %d with an argument that is none", out.code)
	}
}
