package codec

import (
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/internal/redisconn"
	"github.com/headgate/headgate/lua"
	"github.com/headgate/headgate/store"
)

// FuzzRecord: a record that can be read is written again with the same meaning, and holds no more than a job may.
func FuzzRecord(f *testing.F) {
	j := admission.NewJob("acme", "mail", "send", []byte("hello"))
	j.Downstream, j.Timeout, j.Headers, j.Deadline = "api", time.Minute, map[string]string{"a": "1", "b": ""}, time.UnixMicro(1_900_000_000_000_000)
	plain, _ := EncodeRecord(&j, 1)
	f.Add("acme:a", plain)
	f.Add(store.EncodeKey(admission.Key{Tenant: "acme", ID: "018f4e9c-0000-7000-8000-000000000000"}), plain)
	f.Add("", []byte{})
	f.Add("acme:a", plain[:lua.HeaderSize])
	f.Add("acme:a", slices.Concat(plain[:lua.HeaderSize], []byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01}))
	f.Fuzz(func(t *testing.T, key string, raw []byte) {
		record, err := DecodeRecord(key, string(raw))
		if err != nil {
			return
		}
		if record.Lost < 0 || len(record.Job.Headers) > admission.MaxHeaders || record.Job.Timeout < 0 {
			t.Errorf("%+v", record)
		}
		again, large := EncodeRecord(&record.Job, record.Class)
		if large != nil {
			return // A payload of that size stands under a key of its own.
		}
		read, err := DecodeRecord(store.EncodeKey(admission.Key{Tenant: record.Job.Tenant, ID: record.Job.ID}), string(again))
		if err != nil {
			t.Fatal(err)
		}
		if record.Job.MaxAttempts == 0 { // It is then written as the default.
			record.Job.MaxAttempts = admission.DefaultMaxAttempts
		}
		if !sameJob(&read.Job, &record.Job) || read.Class != record.Class {
			t.Errorf("%+v was read from %x, and then %+v", record.Job, raw, read.Job)
		}
	})
}

func sameJob(a, b *admission.Job) bool {
	x, y := *a, *b
	x.Headers, y.Headers, x.Deadline, y.Deadline = nil, nil, time.Time{}, time.Time{}
	return reflect.DeepEqual(x, y) && maps.Equal(a.Headers, b.Headers) && a.Deadline.Equal(b.Deadline)
}

// FuzzKey: the key of a job is read as it was written, so that no two jobs share one.
func FuzzKey(f *testing.F) {
	for _, id := range []string{"a", "018f4e9c-0000-7000-8000-000000000000", "018F4E9C-0000-7000-8000-000000000000", "0123456789abcdef", "a:b"} {
		f.Add("acme", id)
	}
	f.Fuzz(func(t *testing.T, tenant, id string) {
		key := admission.Key{Tenant: tenant, ID: id}
		if store.ValidateKey(key) != nil {
			return
		}
		if got, err := store.DecodeKey(store.EncodeKey(key)); err != nil || got != key {
			t.Errorf("%+v became %+v, %v", key, got, err)
		}
	})
}

// FuzzVerdict: of what admit answers, a refusal has its reason, and what cannot be read is an error.
func FuzzVerdict(f *testing.F) {
	for _, line := range []string{
		letIn(1, 0, 0, 5, 9), letIn(2, 0, 5, 1, 2), letIn(3, 2, -1, 1, 0), letIn(4, 3, -1, 0, 1), letIn(5), "duplicate", "dedup", "memory", "admitted 3 -1", "later 5", "spilled 2", "limited 1 5000000 100 7000000", "limited 9 1 1 1", "costly -1 1",
		"overflow 1 2", "paused -1 why", "unique 5 acme:a", "parked 1 5 api", "dropped 2 " + letIn(1, 0, 0, 0, 0), "dropped x straight", "huge 9", "buckets 4",
		"", " ",
	} {
		f.Add(line)
	}
	job := admission.NewJob("acme", "mail", "send", nil)
	f.Fuzz(func(t *testing.T, line string) {
		v, err := ParseVerdict(line, &job)
		if err == nil && v.Decision == admission.Refused && v.Reason == "" {
			t.Errorf("%q is refused for no reason: %+v", line, v)
		}
	})
}

// FuzzStored: whatever stands in Redis where gates, breakers and pools are kept, it is read or is an error, and what was read can be shown.
func FuzzStored(f *testing.F) {
	meta := strings.TrimSuffix(strings.Repeat("1|", MetaSize), "|")
	for _, seed := range [][2]string{
		{"q:mail", "0|3|1900000000000000|5|why"},
		{"t:acme", "*|0"},
		{"r:acme", "0.000001|5000000|1:2:3"},
		{"s:api", "x|1"},
		{"m", meta},
		{"m", strings.Replace(meta, "1|1", "2|-1", 1)},
		{"2|1|3.5|17|0|1|0|2", "8|s|1|2|mail=3,hook=1"},
		{"3 5", "open"},
		{"", ""},
		{"", " "},
	} {
		f.Add(seed[0], seed[1])
	}
	f.Fuzz(func(t *testing.T, name, value string) {
		if g, err := ParseGate(name, value, map[string]int{"t:*": 2}); err == nil {
			_, _ = g.Shut(), g.Name.Words()
		}
		_, _, _ = ParseMeta(value, 1)
		if clock, ahead, err := ParseClocks([]any{name, value}); err != nil && (clock != 0 || ahead != 0) {
			t.Errorf("%q and %q: %d, %d and %v", name, value, clock, ahead, err)
		}
		_, _ = ParsePool(value), redisconn.ParseInfo(value)
	})
}
