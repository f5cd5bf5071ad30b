package policy_test

import (
	"errors"
	"reflect"
	"strings"
	"testing"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/policy"
)

// TestBadReservesHaveOneClearError: each is refused with the field, what it says and what is allowed.
func TestBadReservesHaveOneClearError(t *testing.T) {
	t.Parallel()
	for fields, want := range map[string]string{
		`"classes":["high"]`:                               `slots 0: allowed is 1 to 1000000, or a percent`,
		`"classes":["high"],"slots":-1`:                    `slots -1: allowed is 1 to 1000000`,
		`"classes":["high"],"percent":100`:                 `percent 100: allowed is 1 to 99`,
		`"classes":["high"],"percent":25,"slots":4`:        `percent 25: allowed is none beside slots`,
		`"classes":["urgent"],"slots":4`:                   `classes "urgent": allowed is a class of the queue: "high", "medium", "low"`,
		`"classes":["high","high"],"slots":4`:              `classes "high": allowed is each class once`,
		`"classes":[],"slots":4`:                           `classes 0 classes: allowed is 1 to 2 classes of the queue: one is left that may not take them`,
		`"classes":["high","medium","low"],"slots":4`:      `classes 3 classes: allowed is 1 to 2 classes of the queue: one is left that may not take them`,
		`"classes":["high"],"slots":4,"work_conserving":1`: `work_conserving (unknown): allowed is one of classes, slots, percent, lend`,
	} {
		_, err := policy.Unmarshal([]byte(`{"queues":{"mail":{"reserved":{` + fields + `}}}}`))
		if err == nil || !errors.Is(err, admission.ErrInvalid) {
			t.Errorf("%s: %v", fields, err)
			continue
		}
		if got := strings.TrimPrefix(err.Error(), "read policy: "); got != "invalid queues.mail.reserved."+want {
			t.Errorf("%s\n got %s\nwant invalid queues.mail.reserved.%s", fields, got, want)
		}
	}
}

// TestReservedClassesAreKnownByTheirPlaces, whatever their order in the policy.
func TestReservedClassesAreKnownByTheirPlaces(t *testing.T) {
	t.Parallel()
	p, err := policy.Unmarshal([]byte(`{"queues":{"mail":{"max_running":9},"sms":{"classes":[{"name":"low","weight":1},{"name":"high","weight":3},{"name":"critical","weight":4}],"reserved":{"classes":["critical","high"],"percent":25,"lend":true}}}}`))
	if err != nil {
		t.Fatal(err)
	}
	c, err := p.Prepare()
	if err != nil {
		t.Fatal(err)
	}
	if got, want := c.Reserved(), []policy.ReservedSlots{{Queue: "sms", Classes: []int{1, 2}, Percent: 25, Lend: true}}; !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, want %+v", got, want)
	}
}
