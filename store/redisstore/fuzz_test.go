package redisstore

import (
	"errors"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/internal/redisconn"
	"github.com/headgate/headgate/lua"
	"github.com/headgate/headgate/store"
)

// FuzzRecord: a record that can be read is written again with the same meaning, and holds no more than a job may.
func FuzzRecord(f *testing.F) {
	j := admission.NewJob("acme", "mail", "send", []byte("hello"))
	j.Downstream, j.Timeout, j.Headers, j.Deadline = "api", time.Minute, map[string]string{"a": "1", "b": ""}, time.UnixMicro(1_900_000_000_000_000)
	plain, _ := encodeRecord(&j, 1)
	f.Add("acme:a", plain)
	f.Add(store.EncodeKey(admission.Key{Tenant: "acme", ID: "018f4e9c-0000-7000-8000-000000000000"}), plain)
	f.Add("", []byte{})
	f.Add("acme:a", plain[:lua.HeaderSize])
	f.Add("acme:a", slices.Concat(plain[:lua.HeaderSize], []byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01}))
	f.Fuzz(func(t *testing.T, key string, raw []byte) {
		record, err := decodeRecord(key, string(raw))
		if err != nil {
			return
		}
		if record.Lost < 0 || len(record.Job.Headers) > admission.MaxHeaders || record.Job.Timeout < 0 {
			t.Errorf("%+v", record)
		}
		again, large := encodeRecord(&record.Job, record.Class)
		if large != nil {
			return // A payload of that size stands under a key of its own.
		}
		read, err := decodeRecord(store.EncodeKey(admission.Key{Tenant: record.Job.Tenant, ID: record.Job.ID}), string(again))
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

// FuzzCursor: a cursor is refused as the caller's mistake, or goes on as the page that ended with it says.
func FuzzCursor(f *testing.F) {
	f.Add(store.ListCursor{Of: 7, Span: "mail", Class: 2, Tenant: "acme", Lane: "napi", Set: store.SetMark{At: -1, Key: []byte{0xff}}}.Encode(), uint32(7))
	f.Add(store.ListCursor{Of: 7, Jobs: store.HashMark{Begun: true, Scan: 1 << 63, Rest: [][]byte{[]byte("acme:a")}}}.Encode(), uint32(8))
	f.Add("", uint32(0))
	f.Add("bnVsbA", uint32(1))
	f.Fuzz(func(t *testing.T, text string, of uint32) {
		c, err := store.DecodeListCursor(text, of)
		if err != nil {
			if _, ok := errors.AsType[*admission.FieldError](err); !ok || !errors.Is(err, admission.ErrInvalid) {
				t.Errorf("%q: %v", text, err)
			}
			return
		}
		again, err := store.DecodeListCursor(c.Encode(), of)
		if err != nil || again.Encode() != c.Encode() || again.Of != of {
			t.Errorf("%q is %+v, and then %+v, %v", text, c, again, err)
		}
	})
}

// FuzzVerdict: of what admit, check and grant answer, a refusal has its reason, and what cannot be read is an error.
func FuzzVerdict(f *testing.F) {
	for _, line := range []string{
		"straight", "duplicate", "dedup", "memory", "admitted 3 -1", "later 5", "spilled 2", "limited 1 5000000 100 7000000", "limited 9 1 1 1", "costly -1 1",
		"overflow 1 2", "paused -1 why", "unique 5 acme:a", "parked 1 5 api", "dropped 2 straight", "dropped x straight", "huge 9", "buckets 4",
		"- - 5 - limited 0 1 1 1", "1 2 3 4 ", "", " ",
	} {
		f.Add(line)
	}
	job := admission.NewJob("acme", "mail", "send", nil)
	f.Fuzz(func(t *testing.T, line string) {
		v, err := parseVerdict(line, &job)
		if err == nil && v.Decision == admission.Refused && v.Reason == "" {
			t.Errorf("%q is refused for no reason: %+v", line, v)
		}
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

// FuzzStored: whatever stands in Redis where gates, breakers, pools, queues, deliveries, entries of streams and counts are
// kept, it is read or is an error, and what was read can be shown.
func FuzzStored(f *testing.F) {
	meta := strings.TrimSuffix(strings.Repeat("1|", metaSize), "|")
	for _, seed := range [][2]string{
		{"q:mail", "0|3|1900000000000000|5|why"},
		{"t:acme", "*|0"},
		{"r:acme", "0.000001|5000000|1:2:3"},
		{"s:api", "x|1"},
		{"", ""},
		{"m", meta},
		{"m", strings.Replace(meta, "1|1", "2|-1", 1)},
		{"c", "10000000|10|20|0.5|5|1|2|2|1000000|1000000|2000000|60000000"},
		{"c", "1|10|20|0.5|5|1|2|2|1000000|1000000|2000000|60000000"},
		{"t", "1,2,3,4,5;6,7,8,9,10"},
		{"w:one", "1|2|1|3|1,2,3,4,5"},
		{"2|1|3.5|17|0|1|0|2", "8|s|1|2|mail=3,hook=1"},
		{"failed|17|5|w1|bad | address", "high=3,medium=2|x"},
		{"open", "3 5"},
		{"full", ""},
		{"forced", "1"},
		{"open", ""},
	} {
		f.Add(seed[0], seed[1])
	}
	f.Fuzz(func(t *testing.T, name, value string) {
		if g, err := parseGate(name, value, map[string]int{"t:*": 2}); err == nil {
			_, _ = g.Shut(), g.Name.Words()
		}
		fields := map[string]string{"m": strings.TrimSuffix(strings.Repeat("1|", metaSize), "|"), "c": "10000000|10|20|0.5|5|1|2|2|1|1|2|6", name: value}
		if b, err := parseBreaker("api", fields, 17, 1); err == nil {
			if b.Limit < store.Unlimited {
				t.Errorf("%q of %q: a limit of %d", value, name, b.Limit)
			}
		}
		if _, err := parseWord([]string{name, value, value}); err == nil && name == "" {
			t.Error("no word is a word")
		}
		q := store.QueueState{Classes: make([]store.ClassState, 3)}
		readQueueText(&q, name)
		if q.Turn < 0 {
			t.Errorf("%q: %+v", name, q)
		}
		config := parseQueueConfig(value)
		_, _ = store.ClassName(config.classes, 0), store.ClassName(config.classes, 255)
		_, _ = parsePool(value), redisconn.ParseInfo(value)
		_, _ = parseDelivery(name)
		_, _ = parseMoment(name)
		_ = minuteOf(1, value)
		_, _, _ = parseClocks([]any{name, value})
		entry := map[string]any{"from": name, "to": value, "at": name, "for": value, "j": name, "r": value, "p": value, name: value}
		_ = auditEntry(entry)
		_, _ = parseEvent(redis.XMessage{ID: name, Values: entry})
		_ = periodOf(redis.XMessage{Values: entry})
		var sight store.Sighting
		if facts, err := readSighting(&sight, []string{name, value, value, name}); err == nil {
			sight.AddWaits(facts)
		}
	})
}
