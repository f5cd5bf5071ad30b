package looking

import (
	"errors"
	"testing"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/store"
)

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

// FuzzStored: whatever stands in Redis where queues and deliveries are kept, it is read or is an error, and what was read can be shown.
func FuzzStored(f *testing.F) {
	for _, seed := range [][2]string{
		{"2|1|3.5|17|0|1|0|2", "8|s|1|2|mail=3,hook=1"},
		{"failed|17|5|w1|bad | address", "high=3,medium=2|x"},
		{"", ""},
		{"", " "},
	} {
		f.Add(seed[0], seed[1])
	}
	f.Fuzz(func(t *testing.T, name, value string) {
		q := store.QueueState{Classes: make([]store.ClassState, 3)}
		readQueueText(&q, name)
		if q.Turn < 0 {
			t.Errorf("%q: %+v", name, q)
		}
		config := parseQueueConfig(value, name)
		_, _ = store.ClassName(config.classes, 0), store.ClassName(config.classes, 255)
		_, _ = parseDelivery(name)
		var sight store.Sighting
		if facts, err := readSighting(&sight, []string{name, value, value, name}); err == nil {
			sight.AddWaits(facts)
		}
	})
}
