package redisstore

import (
	"errors"
	"slices"
	"testing"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/internal/redistest"
	"github.com/headgate/headgate/store"
)

// TestAnUploadedPayloadEntersWithItsJobOrGoes: the payload of a job that is let in stays for as long as the job; of one that is refused, is
// a duplicate or came with the limits of another policy nothing stays, nor of any job where Redis is full.
func TestAnUploadedPayloadEntersWithItsJobOrGoes(t *testing.T) {
	t.Parallel()
	client := redistest.Start(t, redistest.Options{}).Client(t)
	s, err := openOnly(t.Context(), client, Config{})
	check(t, err)
	none := &[admission.Levels]admission.Limit{{Disabled: true}, {Disabled: true}, {Disabled: true}, {Disabled: true}}
	shut := &[admission.Levels]admission.Limit{{Disabled: true}, admission.PerSecond(1), {Disabled: true}, {Disabled: true}}
	large := func(tenant, id string, limits *[admission.Levels]admission.Limit) store.Candidate {
		j := admission.NewJob(tenant, "mail", "t", make([]byte, store.LargePayload+1))
		j.ID = id
		return store.Candidate{Job: &j, Class: 1, Limits: limits}
	}
	small := func(id string) store.Candidate {
		j := admission.NewJob("acme", "mail", "t", nil)
		j.ID = id
		return store.Candidate{Job: &j, Class: 1, Limits: none}
	}
	admit := func(jobs ...store.Candidate) (decisions []admission.Decision) {
		verdicts, err := s.Admit(t.Context(), 0, jobs)
		check(t, err)
		for _, v := range verdicts {
			decisions = append(decisions, v.Decision)
		}
		return decisions
	}
	expect := func(what string, got []admission.Decision, want ...admission.Decision) {
		t.Helper()
		if !slices.Equal(got, want) {
			t.Errorf("%s: %v, not %v", what, got, want)
		}
		uploads, err := client.Keys(t.Context(), s.conn.Partition.Upload("*")).Result()
		check(t, err)
		if len(uploads) > 0 {
			t.Errorf("%s: %v stay", what, uploads)
		}
	}
	in, refused, again := admission.Admitted, admission.Refused, admission.Duplicate

	expect("let in", admit(large("acme", "a", none)), in)
	if ttl, err := client.TTL(t.Context(), s.conn.Partition.Large("acme:a")).Result(); err != nil || ttl != -1 {
		t.Errorf("the payload of a job goes in %v, %v", ttl, err)
	}
	expect("again, and twice in a call", admit(large("acme", "a", none), large("acme", "b", none), large("acme", "b", none)), again, in, again)
	expect("beyond the limit", admit(large("bolt", "a", shut), large("bolt", "b", shut), large("acme", "c", none)), in, refused, in)
	expect("refused alone", admit(large("bolt", "c", shut)), refused)
	expect("refused beside a small one", admit(large("bolt", "c", shut), small("d")), refused, in)
	if _, err := s.Admit(t.Context(), 7, []store.Candidate{large("acme", "e", none)}); !errors.Is(err, store.ErrStale) {
		t.Errorf("limits of another policy: %v", err)
	}
	expect("of another policy", nil)
	check(t, client.ConfigSet(t.Context(), "maxmemory", "1").Err())
	expect("Redis is full", admit(large("acme", "f", none)), refused)
	check(t, client.ConfigSet(t.Context(), "maxmemory", "0").Err())
	for id, n := range map[string]int{"acme:a": 1, "acme:b": 1, "acme:c": 1, "acme:e": 0, "acme:f": 0, "bolt:a": 1, "bolt:b": 0, "bolt:c": 0} {
		if got, err := client.Exists(t.Context(), s.conn.Partition.Large(id)).Result(); err != nil || int(got) != n {
			t.Errorf("%s has %d payloads, %v", id, got, err)
		}
	}
}
