package store_test

import (
	"encoding/base64"
	"encoding/json"
	"testing"

	"github.com/headgate/headgate/store"
)

// TestACursorOfATenantNamesNobodyElse, and is before the same jobs of the tenant as the position that it hides.
func TestACursorOfATenantNamesNobodyElse(t *testing.T) {
	t.Parallel()
	for _, row := range []struct{ lane, key, want string }{
		{"", "acme:a", "acme:a"},
		{"", "aaron:a", "acme:"},
		{"", "acme-2:a", "acme:"},
		{"", "zeta:a", "~"},
		{"n", "any member", "any member"},
	} {
		var cursor, told store.ListCursor
		cursor.Lane, cursor.Set.Key, cursor.Jobs.After = row.lane, []byte(row.key), []byte("zeta:b")
		cursor.Jobs.Rest = [][]byte{[]byte("aaron:1"), []byte("acme:2"), []byte("acme-2:3")}
		raw, err := base64.RawURLEncoding.DecodeString(cursor.EncodeFor("acme"))
		if err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal(raw, &told); err != nil {
			t.Fatal(err)
		}
		if string(told.Set.Key) != row.want || string(told.Jobs.After) != "~" || len(told.Jobs.Rest) != 1 || string(told.Jobs.Rest[0]) != "acme:2" {
			t.Errorf("%q: %s, want %s", row.key, raw, row.want)
		}
	}
}
