package policy

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/headgate/headgate/admission"
)

func TestSemaphoresOfAPolicy(t *testing.T) {
	t.Parallel()
	const text = `{"version":3,"semaphores":{"*":{"max":20},"gpu":{"max":4},"acme:*":{"max":7},"acme:gpu":{"max":0}}}`
	p, err := Unmarshal([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	c, err := p.Prepare()
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]int{"gpu": 4, "disk": 20, "acme:gpu": 0, "acme:disk": 7, "bolt:gpu": 20} {
		if got := c.SemaphoreMax(name); got != want {
			t.Errorf("%s has %d, want %d", name, got, want)
		}
	}
	none, err := Default().Prepare()
	if err != nil || none.SemaphoreMax("gpu") != DefaultSemaphoreMax {
		t.Errorf("without a word the limit is %d (%v)", none.SemaphoreMax("gpu"), err)
	}
	back, err := Marshal(p)
	if err != nil || !strings.Contains(string(back), `"acme:gpu":{"max":0}`) {
		t.Errorf("written %s (%v)", back, err)
	}
	for bad, names := range map[string]string{
		`{"semaphores":{"gpu":{"max":-1}}}`:      "semaphores.gpu.max",
		`{"semaphores":{"gpu":{"max":1000001}}}`: "semaphores.gpu.max",
		`{"semaphores":{"a:b:c":{"max":1}}}`:     "semaphore",
		`{"semaphores":{"a b":{"max":1}}}`:       "semaphore",
		`{"semaphores":{"*:gpu":{"max":1}}}`:     "tenant",
	} {
		if _, err := Unmarshal([]byte(bad)); err == nil || !strings.Contains(err.Error(), names) {
			t.Errorf("%s: %v", bad, err)
		}
	}
}

// TestSemaphoresOfARecord go before all that the policy says of the tenant's: one by its name, then each; and tell the version of the record that they come from.
func TestSemaphoresOfARecord(t *testing.T) {
	t.Parallel()
	p, err := Unmarshal([]byte(`{"version":3,"tenant_records":true,"semaphores":{"*":{"max":20},"gpu":{"max":4},"acme:*":{"max":7},"acme:gpu":{"max":5}}}`))
	if err != nil {
		t.Fatal(err)
	}
	c, err := p.Prepare()
	if err != nil {
		t.Fatal(err)
	}
	is := func(when string, record int64, all map[string]int) {
		t.Helper()
		for name, want := range all {
			version := record
			if !strings.HasPrefix(name, "acme:") {
				version = NoRecord
			}
			if !strings.Contains(name, ":") {
				version = 0
			}
			if most, of := c.SemaphoreFor(name); most != want || of != version || c.SemaphoreMax(name) != most {
				t.Errorf("%s %s has %d of record %d, want %d of %d", when, name, most, of, want, version)
			}
		}
	}
	is("without a record", NoRecord, map[string]int{"gpu": 4, "disk": 20, "acme:gpu": 5, "acme:disk": 7, "bolt:gpu": 20})
	learn := func(version int64, text string) {
		t.Helper()
		if err := c.Learn("acme", version, []byte(text)); err != nil {
			t.Fatal(err)
		}
	}
	learn(10, `{"semaphores":{"gpu":{"max":0}}}`)
	is("by its name", 10, map[string]int{"gpu": 4, "disk": 20, "acme:gpu": 0, "acme:disk": 7, "bolt:gpu": 20})
	learn(11, `{"semaphores":{"gpu":{"max":9},"*":{"max":2}}}`)
	is("by its name and each", 11, map[string]int{"gpu": 4, "acme:gpu": 9, "acme:disk": 2, "bolt:disk": 20})
	learn(12, `{"semaphores":{"*":{"max":2}}}`)
	is("each", 12, map[string]int{"acme:gpu": 2, "acme:disk": 2})
	learn(13, `{"max_running":2}`)
	is("of something else", 13, map[string]int{"acme:gpu": 5, "acme:disk": 7})
	const text = `{"max_running":2,"queues":{"mail":{"max_running":1}},"semaphores":{"*":{"max":0},"gpu":{"max":4}}}`
	if r, err := UnmarshalRecord([]byte(text)); err != nil || r.Empty() {
		t.Error(err)
	} else if back, err := MarshalRecord(r); string(back) != text || err != nil {
		t.Errorf("%s, %v", back, err)
	}
	many := make([]string, MaxRecordSemaphores+1)
	for i := range many {
		many[i] = fmt.Sprintf(`"s%d":{"max":1}`, i)
	}
	for bad, told := range map[string]string{
		`{"semaphores":{"gpu":{"max":-1}}}`:                    "semaphores.gpu.max -1: allowed is 0 to 1000000",
		`{"semaphores":{"gpu":{"max":1000001}}}`:               "semaphores.gpu.max 1000001: allowed is 0 to 1000000",
		`{"semaphores":{"acme:gpu":{"max":1}}}`:                "semaphore",
		`{"semaphores":{"g pu":{"max":1}}}`:                    "semaphore",
		`{"semaphores":{"gpu":{"most":1}}}`:                    "semaphores.gpu.most (unknown)",
		`{"semaphores":{` + strings.Join(many, ",") + `}}`:     "semaphores 65 names: allowed is up to 64",
		`{"queues":{"mail":{"semaphores":{"gpu":{"max":1}}}}}`: "queues.mail.semaphores (unknown)",
	} {
		if _, err := UnmarshalRecord([]byte(bad)); !errors.Is(err, admission.ErrInvalid) || !strings.Contains(err.Error(), told) {
			t.Errorf("%s: %v, want it to tell %s", bad, err, told)
		}
	}
}
