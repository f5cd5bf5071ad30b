package rlstest

import (
	"encoding/hex"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	extension "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	ratelimit "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/protobuf/proto"
)

var update = flag.Bool("update", false, "write rls/testdata/published.txt")

// TestPublishedBytes: package rls is tested by what the published protos write, without them.
func TestPublishedBytes(t *testing.T) {
	t.Parallel()
	overridden := descriptor("tenant", "acme")
	overridden.Limit = &extension.RateLimitDescriptor_RateLimitOverride{RequestsPerUnit: 7}
	var b strings.Builder
	b.WriteString("# RateLimitRequests by the protos of go-control-plane; `go test -C grpclimit ./rlstest -run Published -update` writes them.\n")
	for _, row := range []struct {
		name  string
		asked *ratelimit.RateLimitRequest
	}{
		{"empty", &ratelimit.RateLimitRequest{}},
		{"plain", asked(0, descriptor("tenant", "acme"))},
		{"addends", asked(3, descriptor("tenant", "acme", "path", "/search"), costing(0, "tenant", "b"), costing(1<<40, "tenant", "c"))},
		{"overridden", asked(1, overridden)},
		{"not-ASCII", asked(1, descriptor("schlüssel", ""))},
	} {
		message, err := proto.MarshalOptions{Deterministic: true}.Marshal(row.asked)
		check(t, err)
		fmt.Fprintf(&b, "%s %s\n", row.name, hex.EncodeToString(message))
	}
	file := filepath.Join("..", "..", "rls", "testdata", "published.txt")
	if *update {
		check(t, os.WriteFile(file, []byte(b.String()), 0o600))
	}
	text, err := os.ReadFile(file)
	check(t, err)
	if string(text) != b.String() {
		t.Errorf("%s is not what the protos write:\n%s", file, b.String())
	}
}
