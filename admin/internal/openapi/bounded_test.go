package openapi_test

import (
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/headgate/headgate/admin/internal/openapi"
	"github.com/headgate/headgate/admin/internal/problem"
)

// allocated returns how many bytes a call allocates. Others must not run meanwhile.
func allocated(call func()) uint64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	call()
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}

// What looking at a body may allocate: bytes for each byte of it, and for its faults.
const (
	eachByte  = 128
	allFaults = 4 << 20
)

// bodies are what cost most before their length, their depth and their faults were bounded.
func bodies(size int) map[string]string {
	fill := func(before, item, after string) string {
		return before + item + strings.Repeat(","+item, (size-len(before)-len(after))/(len(item)+1)-1) + after
	}
	nest := func(begin, inner, end string) string {
		n := size / (len(begin) + len(end))
		return strings.Repeat(begin, n) + inner + strings.Repeat(end, n)
	}
	return map[string]string{
		"checks of numbers":   fill(`{"checks":[`, `0`, `]}`),
		"checks of objects":   fill(`{"checks":[`, `{}`, `]}`),
		"one check, strange":  fill(`{"checks":[{"x":[`, `{}`, `]}]}`),
		"keys":                fill(`{"keys":[`, `{}`, `]}`),
		"queues":              fill(`{"queues":[`, `{}`, `]}`),
		"members":             `{` + strings.Repeat(`"":0,`, size/5) + `"a":0}`,
		"headers":             fill(`{"headers":{`, `"a":0`, `}}`),
		"a payload":           fill(`{"payload":[`, `0`, `]}`),
		"a payload of texts":  fill(`{"payload":[`, `""`, `]}`),
		"a policy":            fill(`{"tenants":[`, `{}`, `]}`),
		"rules":               fill(`{"rules":{"tenants":[`, `{}`, `]}}`),
		"nested lists":        nest(`[`, ``, `]`),
		"nested members":      nest(`{"":`, `0`, `}`),
		"nested in a payload": `{"payload":` + nest(`[`, ``, `]`) + `}`,
		"open lists":          strings.Repeat(`[`, size),
		"a text":              `{"payload":"` + strings.Repeat("x", size) + `"}`,
	}
}

// checkBounded fails if looking at a body costs more than the bounds.
func checkBounded(tb testing.TB, document *openapi.Document, pattern string, body []byte) {
	tb.Helper()
	operation, ok := document.Operation(pattern)
	if !ok || !operation.TakesBody() {
		return
	}
	var faults []problem.Fault
	got := allocated(func() { faults = operation.CheckBody(body) })
	if limit := uint64(allFaults + eachByte*len(body)); got > limit {
		tb.Errorf("%s: %.60q (%d bytes) cost %d bytes, %d a byte", pattern, body, len(body), got, got/uint64(len(body)+1))
	}
	if len(faults) > problem.MaxFaults {
		tb.Errorf("%s: %.60q has %d faults", pattern, body, len(faults))
	}
}

// TestABodyCostsWhatItIsLongAndNoMore: of every operation, and up to 256 KiB. It is not parallel, since
// it counts what the process allocates.
func TestABodyCostsWhatItIsLongAndNoMore(t *testing.T) { //nolint:paralleltest // It counts allocations of the process.
	document := load(t)
	for _, pattern := range document.Patterns() {
		size := 16 << 10
		if strings.HasSuffix(pattern, "/check") || strings.HasSuffix(pattern, "/jobs") {
			size = 256 << 10
		}
		for _, body := range bodies(size) {
			checkBounded(t, document, pattern, []byte(body))
		}
	}
}

func TestWhatABodyHasTooMuchOfIsTold(t *testing.T) {
	t.Parallel()
	deep := func(n int) string { return strings.Repeat("[", n) + strings.Repeat("]", n) }
	for name, row := range map[string]struct{ pattern, body, want string }{
		"a list":           {"POST /api/v1/rate-limit/check", `{"checks":[` + strings.Repeat(`0,`, 64) + `0]}`, "/checks: maxItems: got more than 64, want 64"},
		"keys":             {"POST /api/v1/dead-letters/purge", `{"keys":[` + strings.Repeat(`{},`, 64) + `{}]}`, "/keys: maxItems: got more than 64, want 64"},
		"levels":           {"POST /api/v1/jobs", `{"tenant":"acme","queue":"mail","type":"t","payload":` + deep(32) + `}`, "/payload: is nested too deep; allowed are 31 levels"},
		"as many levels":   {"POST /api/v1/jobs", `{"tenant":"acme","queue":"mail","type":"t","payload":` + deep(31) + `}`, ""},
		"a long payload":   {"POST /api/v1/jobs", `{"tenant":"acme","queue":"mail","type":"t","payload":[` + strings.Repeat(`0,`, 5000) + `0]}`, ""},
		"as it came":       {"POST /api/v1/jobs", `{"tenant":"acme","queue":"mail","type":"t","payload":[{"a":{"b":1,"b":2e999,"c":"[[\\\\\"[["}}]}`, ""},
		"members":          {"PUT /api/v1/queues/{queue}/pause", `{` + named(70) + `}`, ": has more members than the 52 that are looked at"},
		"headers":          {"POST /api/v1/jobs", `{"headers":{` + named(40) + `}}`, "/headers: has more members than the 32 that are looked at"},
		"a large document": {"PUT /api/v1/policy", `{` + named(3000) + `,"version":-1}`, "/version: minimum: got -1, want 0"},
	} {
		if got := lines(operation(t, row.pattern).CheckBody([]byte(row.body))); got != row.want {
			t.Errorf("%s: %s", name, got)
		}
	}
	var many []problem.Fault
	for range 60 {
		many = append(many, problem.At("", "x"))
	}
	if got := len(problem.Invalid(many...).Faults); got != 50 {
		t.Errorf("%d faults are told", got)
	}
}

// named is n members.
func named(n int) string {
	var all []string
	for i := range n {
		all = append(all, fmt.Sprintf(`"m%d":"v"`, i))
	}
	return strings.Join(all, ",")
}

// FuzzCheckBodyIsBounded: whatever a body is, looking at it allocates a bounded number of bytes for each of its own.
func FuzzCheckBodyIsBounded(f *testing.F) {
	document := load(f)
	patterns := document.Patterns()
	slices.Sort(patterns)
	for _, body := range bodies(4 << 10) {
		f.Add(uint8(slices.Index(patterns, "POST /api/v1/rate-limit/check")), []byte(body))
	}
	f.Fuzz(func(t *testing.T, which uint8, body []byte) {
		checkBounded(t, document, patterns[int(which)%len(patterns)], body)
	})
}
