package rls

import (
	"encoding/hex"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
)

// TestWhatThePublishedProtosWriteIsRead: the bytes are those of Envoy's own protos (grpclimit/rlstest), which are not linked here.
func TestWhatThePublishedProtosWriteIsRead(t *testing.T) {
	t.Parallel()
	acme := []Match{{"tenant", "acme"}}
	want := map[string]call{
		"empty":      {},
		"plain":      {domain: "edge", descriptors: []descriptor{{entries: acme}}},
		"addends":    {domain: "edge", hits: 3, descriptors: []descriptor{{entries: []Match{{"tenant", "acme"}, {"path", "/search"}}}, {entries: []Match{{"tenant", "b"}}, own: true}, {entries: []Match{{"tenant", "c"}}, own: true, hits: 1 << 40}}},
		"overridden": {domain: "edge", hits: 1, descriptors: []descriptor{{entries: acme}}},
		"not-ASCII":  {domain: "edge", hits: 1, descriptors: []descriptor{{entries: []Match{{"schlüssel", ""}}}}},
	}
	text, err := os.ReadFile(filepath.Join("testdata", "published.txt"))
	check(t, err)
	read := 0
	for line := range strings.Lines(string(text)) {
		name, digits, _ := strings.Cut(strings.TrimSpace(line), " ")
		if name == "#" {
			continue
		}
		message, err := hex.DecodeString(digits)
		check(t, err)
		got, err := readCall(message)
		if one, ok := want[name]; err != nil || !ok || !reflect.DeepEqual(got, one) {
			t.Errorf("%s: %+v, %v, want %+v", name, got, err, one)
		}
		read++
	}
	if read != len(want) {
		t.Errorf("%d were read", read)
	}
}
