package intake

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/admission"
)

func TestLinesAreReadStrictly(t *testing.T) {
	t.Parallel()
	for _, row := range []struct{ line, want string }{
		{`{"tenant":"acme"}`, ""},
		{`{"tenant":"acme","payload":{"a":[1,2]},"headers":{"a":"b"},"cost":3,"deadline":"5m"} `, ""},
		{`{}`, ""},
		{``, "the object does not end"},
		{`{"tenant":"acme"`, "the object does not end"},
		{`{"tenant"`, "the object does not end"},
		{`[1]`, "not a JSON object"},
		{`"tenant"`, "not a JSON object"},
		{`{"tenant":"acme"} {}`, "something after the object"},
		{`{"tenant":"acme"} x`, "something after the object"},
		{`{"tenent":"acme"}`, `unknown field "tenent": there are cost, deadline, delay, downstream, headers, id,`},
		{`{"Tenant":"acme"}`, `unknown field "Tenant"`},
		{`{"tenant":"acme","tenant":"zulu"}`, `field "tenant" twice`},
		{`{"tenant":7}`, "field tenant: a number where there should be a string"},
		{`{"cost":"much"}`, "field cost: a string where there should be a int64"},
		{`{"cost":1.5}`, "field cost: a number where there should be a int64"},
		{`{"headers":{"a":1}}`, "field headers: a number where there should be a string"},
		{`{"payload":1,"payload_base64":"AA=="}`, "both payload and payload_base64"},
		{`{"payload_base64":"?"}`, "field payload_base64: illegal base64"},
		{"{\"tenant\":\"a\xff\"}", "not UTF-8"},
		{`{tenant:"acme"}`, "invalid character 't'"},
	} {
		_, err := parse([]byte(row.line), Spec{})
		if (err == nil) != (row.want == "") || err != nil && !strings.Contains(err.Error(), row.want) {
			t.Errorf("%s gave %v, want %q", row.line, err, row.want)
		}
	}
}

func TestPayloadsAreTextOrJSONOrBytes(t *testing.T) {
	t.Parallel()
	for line, want := range map[string]string{
		`{"payload":"a\n\"b\""}`:      "a\n\"b\"",
		`{"payload":{"b": 1,"a":[]}}`: `{"b": 1,"a":[]}`,
		`{"payload":[1]}`:             "[1]",
		`{"payload":7}`:               "7",
		`{"payload":null}`:            "null",
		`{"payload":""}`:              "",
		`{"payload_base64":"/wA="}`:   "\xff\x00",
		`{}`:                          "the flag's",
	} {
		s, err := parse([]byte(line), Spec{Payload: []byte("the flag's")})
		if err != nil || string(s.Payload) != want {
			t.Errorf("%s gave %q, %v", line, s.Payload, err)
		}
	}
}

func TestFlagsFillWhatALineDoesNotSay(t *testing.T) {
	t.Parallel()
	flags := Spec{Tenant: "acme", Queue: "mail", Cost: 7, Headers: map[string]string{"a": "1"}}
	first, err := parse([]byte(`{"queue":"hook","headers":{"b":"2"}}`), flags)
	if err != nil || first.Tenant != "acme" || first.Queue != "hook" || first.Cost != 7 || fmt.Sprint(first.Headers) != "map[b:2]" {
		t.Errorf("got %+v, %v", first, err)
	}
	if second, _ := parse([]byte(`{}`), flags); second.Queue != "mail" || fmt.Sprint(second.Headers) != "map[a:1]" {
		t.Errorf("got %+v", second)
	}
}

func TestASpecBecomesAJob(t *testing.T) {
	t.Parallel()
	now := time.Date(2031, 5, 4, 12, 0, 0, 0, time.UTC)
	good := Spec{Tenant: "acme", Queue: "mail", Type: "welcome", Cost: 1, Deadline: "5m", Timeout: "30s"}
	job, err := good.Job(now)
	if err != nil || !job.Deadline.Equal(now.Add(5*time.Minute)) || job.Timeout != 30*time.Second {
		t.Errorf("got %+v, %v", job, err)
	}
	good.Deadline = "2031-05-04T14:00:00+01:00"
	if job, err := good.Job(now); err != nil || !job.Deadline.Equal(now.Add(time.Hour)) {
		t.Errorf("got %+v, %v", job, err)
	}
	bad := Spec{Tenant: "global", Type: "a b", Cost: 0, Deadline: "soon", Timeout: "long", MaxAttempts: 900}
	_, err = bad.Job(now)
	for _, field := range []string{"tenant", "queue", "type", "cost", "deadline", "timeout", "max attempts"} {
		if !errors.Is(err, admission.ErrInvalid) || !strings.Contains(err.Error(), "invalid "+field) {
			t.Errorf("%s is not named: %v", field, err)
		}
	}
}

func TestLinesOfAnyLength(t *testing.T) {
	t.Parallel()
	long, tooLong := strings.Repeat("x", 300<<10), strings.Repeat("y", maxLine+1)
	reader := bufio.NewReader(strings.NewReader("a\r\n\n" + long + "\n" + tooLong + "\nb\n" + tooLong + "\nc"))
	for i, want := range []string{"a", "", long, "too long", "b", "too long", "c", "end"} {
		line, err := readLine(reader)
		switch {
		case errors.Is(err, errTooLong):
			line = []byte("too long")
		case errors.Is(err, io.EOF):
			line = []byte("end")
		case err != nil:
			t.Fatal(err)
		}
		if string(line) != want {
			t.Errorf("line %d has %d bytes, want %d", i+1, len(line), len(want))
		}
	}
}
