package openapi_test

import (
	"encoding/json"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// TestWhatIsNoJSONIsNeverTaken: a body is read token by token, once, and what of it is free is passed over; whatever is changed in a
// good one, it is refused where it is no JSON any more.
func TestWhatIsNoJSONIsNeverTaken(t *testing.T) {
	t.Parallel()
	operation := operation(t, "POST /api/v1/jobs")
	good := []string{
		`{"tenant":"acme","queue":"mail","type":"t","payload":[1,{"a":"\"[","b":null},-2.5e3,"x"],"headers":{"h":"v"},"unique":{"key":"k"}}`,
		`{"tenant":"acme","queue":"mail","type":"t"}`, `{"payload":"text","tenant":"acme","queue":"mail","type":"t","cost":3}`,
	}
	rapid.Check(t, func(t *rapid.T) {
		body := []byte(rapid.SampledFrom(good).Draw(t, "body"))
		for range rapid.IntRange(0, 3).Draw(t, "changes") {
			at := rapid.IntRange(0, len(body)-1).Draw(t, "at")
			switch letter := rapid.SampledFrom([]byte("{}[],:\"\\0a- \n\x00")).Draw(t, "letter"); rapid.IntRange(0, 2).Draw(t, "how") {
			case 0:
				body[at] = letter
			case 1:
				body = append(body[:at:at], body[at+1:]...)
			default:
				body = append(body[:at:at], append([]byte{letter}, body[at:]...)...)
			}
		}
		if faults := operation.CheckBody(body); len(faults) == 0 && !json.Valid(body) {
			t.Fatalf("taken: %s", body)
		}
	})
}

// BenchmarkBodyOfAMegabyte is what a job with a payload of that size costs before it is decoded.
func BenchmarkBodyOfAMegabyte(b *testing.B) {
	operation := operation(b, "POST /api/v1/jobs")
	body := []byte(`{"tenant":"acme","queue":"mail","type":"t","payload":"` + strings.Repeat("x", 1<<20-1024) + `"}`)
	b.SetBytes(int64(len(body)))
	for b.Loop() {
		if faults := operation.CheckBody(body); len(faults) > 0 {
			b.Fatal(faults)
		}
	}
}
