package doctor

import (
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/store"
)

// TestTiersOfRecordsThatAreNotInThePolicy are told, over all partitions; without any there is no line.
func TestTiersOfRecordsThatAreNotInThePolicy(t *testing.T) {
	t.Parallel()
	s, _, _ := open(t, 3)
	check(t, s.PutPolicy(t.Context(), store.PolicyUpdate{Version: 1, Text: []byte(`{"version": 1, "tenant_records": true}`), Window: time.Minute}))
	put := func(tenant, text string) {
		t.Helper()
		_, err := s.PutRecord(t.Context(), store.RecordEdit{Tenant: tenant, Policy: 1, Text: []byte(text)})
		check(t, err)
	}
	none := func(when string) {
		t.Helper()
		r, err := Run(t.Context(), s)
		check(t, err)
		for _, f := range r.Findings {
			if f.Name == "records" {
				t.Errorf("%s: %+v", when, f)
			}
		}
	}
	none("without records")
	put("ann", `{"tier":"premium"}`)
	put("bob", `{"priority_weights":{"high":3}}`)
	none("with tiers of the policy")
	for tenant := range strings.FieldsSeq("a b c d e f g h") {
		put(tenant, `{"tier":"lead"}`)
	}
	put("i", `{"tier":"bronze"}`)
	expect(t, s, "records", HealthWarn, "standard counts for them: bronze, by the records of 1 tenants; lead, by the records of 8 tenants")
	if f := look(t, s, "records"); !strings.Contains(f.Do, "headgate tenant list --tier bronze") {
		t.Errorf("%+v", f)
	}
	put("i", "")
	for tenant := range strings.FieldsSeq("a b c d e f g h") {
		put(tenant, `{"tier":"basic"}`)
	}
	none("once they are mended")
}
