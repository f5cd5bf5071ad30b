package intake

import (
	"encoding/json"
	"errors"
	"reflect"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/headgate/headgate/admission"
)

// FuzzLine: a line that is read says the same when it is written again, and becomes a job that is valid, or one error that
// names the field.
func FuzzLine(f *testing.F) {
	for _, line := range []string{
		`{"tenant":"acme","queue":"q","type":"t","payload":{"a":[1,2]},"headers":{"a":"b"},"cost":3,"deadline":"5m","timeout":"30s"}`,
		`{"payload_base64":"/wA=","max_attempts":3,"priority":"high","downstream":"api","id":"x"}`, `{"payload":"a\n\"b\""}`, `{"payload":null}`,
		`{"tenant":"acme"} {}`, `{"tenant":"a","tenant":"b"}`, `{"deadline":"2031-05-04T14:00:00+01:00"}`, `{"cost":1e3}`, `[`, ``, "{\"id\":\"\xff\"}",
		`{"headers":null,"cost":-1,"max_attempts":999999999999999999}`,
	} {
		f.Add([]byte(line))
	}
	now := time.Date(2031, 5, 4, 12, 0, 0, 0, time.UTC)
	f.Fuzz(func(t *testing.T, line []byte) {
		s, err := parse(line, Spec{})
		if err != nil {
			if !utf8.ValidString(err.Error()) {
				t.Errorf("%q: %q", line, err)
			}
			return
		}
		written, err := json.Marshal(map[string]any{
			"id": s.ID, "tenant": s.Tenant, "queue": s.Queue, "type": s.Type, "priority": s.Priority, "downstream": s.Downstream, "cost": s.Cost,
			"deadline": s.Deadline, "timeout": s.Timeout, "max_attempts": s.MaxAttempts, "headers": s.Headers, "payload_base64": s.Payload,
		})
		if err != nil {
			t.Fatal(err)
		}
		if again, err := parse(written, Spec{}); err != nil || !reflect.DeepEqual(again, s) {
			t.Errorf("%q is %+v, and written again %+v, %v", line, s, again, err)
		}
		job, err := s.Job(now)
		if err == nil && job.Validate(admission.DefaultMaxPayload) != nil {
			t.Errorf("%q is no valid job: %+v", line, job)
		}
		if _, named := errors.AsType[*admission.FieldError](err); err != nil && (!named || !errors.Is(err, admission.ErrInvalid)) {
			t.Errorf("%q: %v names no field", line, err)
		}
	})
}
