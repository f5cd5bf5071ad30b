package policy

import (
	"strings"
	"testing"
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
