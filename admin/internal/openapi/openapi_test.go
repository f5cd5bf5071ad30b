package openapi_test

import (
	"fmt"
	"net/url"
	"strings"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"

	"github.com/headgate/headgate/admin/internal/openapi"
	"github.com/headgate/headgate/admin/internal/problem"
)

func load(tb testing.TB) *openapi.Document {
	tb.Helper()
	document, err := openapi.Load()
	if err != nil {
		tb.Fatal(err)
	}
	return document
}

func operation(tb testing.TB, pattern string) *openapi.Operation {
	tb.Helper()
	o, ok := load(tb).Operation(pattern)
	if !ok {
		tb.Fatalf("there is no %s", pattern)
	}
	return o
}

func TestTheDescriptionIsOpenAPI31(t *testing.T) {
	t.Parallel()
	text := load(t).JSON()
	document, err := openapi3.NewLoader().LoadFromData(text)
	if err != nil {
		t.Fatal(err)
	}
	if err := document.Validate(t.Context()); err != nil {
		t.Error(err)
	}
	if document.OpenAPI != "3.1.0" {
		t.Errorf("openapi is %s", document.OpenAPI)
	}
}

func lines(faults []problem.Fault) string {
	var all []string
	for _, f := range faults {
		where := f.Parameter
		if f.Pointer != nil {
			where = *f.Pointer
		}
		all = append(all, fmt.Sprintf("%s: %s", where, f.Detail))
	}
	return strings.Join(all, "\n")
}

// jobMembers are those of a job.
const jobMembers = "cost, deadline, delay, downstream, headers, id, max_attempts, payload, payload_base64, priority, queue, run_at, tenant, timeout, type, unique"

// TestAMemberThatIsNotThereIsToldWhatIs: those that are allowed in its place, as of a wrong parameter; and that it is a parameter, where it is one.
func TestAMemberThatIsNotThereIsToldWhatIs(t *testing.T) {
	t.Parallel()
	for _, row := range []struct{ pattern, body, want string }{
		{"POST /api/v1/rate-limit/check", `{"scope":"acme","token":3}`, "/token: there is no such member; allowed is also, checks, metadata, peek, priority, scope, tokens"},
		{
			"PUT /api/v1/rate-limit/config/{scope}", `{"tokens":1,"per":"1s","reason":"x"}`,
			"/reason: there is no such member; allowed is algorithm, anchor, burst, burst_capacity, enabled, per, rate_per_second, tokens, window, zone; reason is a parameter of the query",
		},
		{"PUT /api/v1/queues/{queue}/pause", `{"reasn":"x"}`, "/reasn: there is no such member; allowed is for, reason"},
		{"POST /api/v1/dead-letters/purge", `{"keys":[{"tenant":"a","id":"b","x":1}]}`, "/keys/0/x: there is no such member; allowed is id, tenant"},
	} {
		if got := lines(operation(t, row.pattern).CheckBody([]byte(row.body))); got != row.want {
			t.Errorf("%s %s:\n%s\nwant\n%s", row.pattern, row.body, got, row.want)
		}
	}
}

func TestEveryFaultOfABodyIsToldWithItsPlace(t *testing.T) {
	t.Parallel()
	for body, want := range map[string]string{
		`{"tenant":"acme","queue":"mail","type":"t"}`: "",
		"":              ": the body is missing",
		`{`:             ": the body is not one JSON value: unexpected end of JSON input",
		`{} {}`:         ": the body is not one JSON value: invalid character '{' after top-level value",
		`[]`:            ": got array, want object",
		`{"a":{}}`:      "/a: there is no such member; allowed is " + jobMembers + "\n/queue: is missing\n/tenant: is missing\n/type: is missing",
		`{"a":1,"a":2}`: "/a: is there several times; allowed is once",
		`{"tenant":"acme","queue":"mail","type":"t","unique":{"key":"k","key":"l"}}`: "/unique/key: is there several times; allowed is once",
		`{"tenant":"global","queue":"a:b","type":7,"cost":0,"delay":"soon","unique":{"ky":1},"run_at":"noon"}`: strings.Join([]string{
			"/cost: minimum: got 0, want 1",
			"/delay: does not match ^([0-9]+(\\.[0-9]+)?(ms|s|m|h))+$",
			"/queue: does not match ^[A-Za-z0-9._@/-]{1,128}$",
			"/run_at: is no date-time",
			"/tenant: is what the schema excludes",
			"/type: got number, want string",
			"/unique/key: is missing",
			"/unique/ky: there is no such member; allowed is for, key, release",
		}, "\n"),
	} {
		if got := lines(operation(t, "POST /api/v1/jobs").CheckBody([]byte(body))); got != want {
			t.Errorf("%s:\n%s\nwant\n%s", body, got, want)
		}
	}
}

// TestNumbersThatTakeLongAreRefusedUnread: the schema's exact arithmetic takes tens of milliseconds for a number of a million
// digits, and a body has room for a hundred thousand of them.
func TestNumbersThatTakeLongAreRefusedUnread(t *testing.T) {
	t.Parallel()
	const refused = "is no number that a float64 holds"
	check := operation(t, "POST /api/v1/rate-limit/check")
	for number, where := range map[string]string{
		"1e999999": "/checks/0/tokens: ", "-1e999999": "/checks/0/tokens: ", "1e-999999": "/checks/0/tokens: ",
		"1" + strings.Repeat("0", 100): "/checks/0/tokens: ", "0." + strings.Repeat("0", 100) + "1": "/checks/0/tokens: ",
	} {
		body := `{"checks":[` + strings.Repeat(`{"scope":"acme","tokens":`+number+`},`, 63) + `{"scope":"acme"}]}`
		if got := lines(check.CheckBody([]byte(body))); got != where+refused {
			t.Errorf("%.20s: %s", number, got)
		}
	}
	body := `{"checks":[{"scope":"acme","tokens":1},{"scope":"acme","more":[0.5,2,{"a":[1e400]}]}]}`
	if got := lines(check.CheckBody([]byte(body))); got != "/checks/1/more: there is no such member; allowed is also, priority, scope, tokens" {
		t.Error(got)
	}
}

func TestOfFormsThatExcludeEachOtherOneIsTaken(t *testing.T) {
	t.Parallel()
	check := operation(t, "POST /api/v1/rate-limit/check")
	for body, good := range map[string]bool{
		`{"scope":"acme"}`:                          true,
		`{"scope":"acme:mail:high","tokens":3}`:     true,
		`{"checks":[{"scope":"acme"}],"peek":true}`: true,
		`{}`: false,
		`{"scope":"acme","checks":[{"scope":"a"}]}`: false,
		`{"tokens":2,"checks":[{"scope":"a"}]}`:     false,
		`{"scope":"acme:mail:high:more"}`:           false,
		`{"scope":"acme:"}`:                         false,
		`{"scope":""}`:                              false,
		`{"scope":"acme","tokens":1.5}`:             false,
		`{"scope":"acme","tokens":1000001}`:         false,
	} {
		if faults := check.CheckBody([]byte(body)); (len(faults) == 0) != good {
			t.Errorf("%s: %s", body, lines(faults))
		}
	}
}

func TestEveryFaultOfAQueryIsTold(t *testing.T) {
	t.Parallel()
	list := operation(t, "GET /api/v1/jobs")
	for query, want := range map[string]string{
		"limit=7&place=dead&queue=mail": "",
		"limit=0&place=here&limt=1&queue=a&queue=b": "limit: minimum: got 0, want 1\n" +
			"limt: there is no such parameter; allowed is cursor, limit, place, queue, tenant, type\n" +
			"place: value must be one of 'waiting', 'later', 'spilled', 'ready', 'running', 'dead'\n" +
			"queue: is there several times; allowed is once",
		"limit=many": "limit: got string, want integer",
	} {
		values, err := url.ParseQuery(query)
		if err != nil {
			t.Fatal(err)
		}
		if got := lines(list.CheckQuery(values)); got != want {
			t.Errorf("%s:\n%s\nwant\n%s", query, got, want)
		}
	}
}
