package limits

import (
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/store"
)

// FuzzAnswer: of what check and grant answer, a refusal has its reason, and what cannot be read is an error.
func FuzzAnswer(f *testing.F) {
	for _, line := range []string{
		"straight", "granted 1 5 9", "duplicate", "dedup", "memory", "admitted 3 -1", "later 5", "spilled 2", "limited 1 5000000 100 7000000", "limited 9 1 1 1", "costly -1 1",
		"overflow 1 2", "paused -1 why", "unique 5 acme:a", "parked 1 5 api", "dropped 2 straight", "dropped x straight", "huge 9", "buckets 4",
		"- - 5 - limited 0 1 1 1", "1 2 3 4 ", "", " ",
	} {
		f.Add(line)
	}
	f.Fuzz(func(t *testing.T, line string) {
		question := store.Question{Tenant: "acme", Queue: "mail", Class: admission.Medium, Cost: 1}
		if a, err := parseAnswer(line, &question); err == nil && a.Verdict.Decision == admission.Refused && a.Verdict.Reason == "" {
			t.Errorf("%q is refused for no reason: %+v", line, a)
		}
		grant := &store.Grant{Questions: []store.Question{question}, Accounts: []store.Account{{}}}
		if g, err := parseGranted(strings.Split(line, "\n"), grant); err == nil && (len(g.Verdicts) != 1 || len(g.Leases) != 1) {
			t.Errorf("%q grants %+v", line, g)
		}
	})
}

// FuzzStored: whatever stands in Redis where counts and moments are kept, it is read or is an error, and what was read can be shown.
func FuzzStored(f *testing.F) {
	for _, seed := range [][2]string{
		{"5|1", "1 2 3"},
		{"1900000000000000", "17|5"},
		{"", ""},
		{"", " "},
	} {
		f.Add(seed[0], seed[1])
	}
	f.Fuzz(func(t *testing.T, name, value string) {
		_, _ = parseMoment(name)
		if m := minuteOf(1, value); !m.At.Equal(time.Unix(60, 0)) {
			t.Errorf("%q is of %v", value, m.At)
		}
	})
}
