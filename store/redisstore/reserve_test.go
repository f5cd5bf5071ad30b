package redisstore

import (
	"testing"

	"github.com/headgate/headgate/store"
)

// TestPartitionsDivideTheSlotsThatAreKept: they add up to what the policy says, and a percent is each one's own.
func TestPartitionsDivideTheSlotsThatAreKept(t *testing.T) {
	t.Parallel()
	u := &store.PolicyUpdate{Reserves: []store.Reserve{{Queue: "mail", Classes: []int{0}, Slots: 4}, {Queue: "sms", Classes: []int{0, 1}, Percent: 25, Lends: true}}}
	want := [][]string{{"2:0", "25%~:0,1"}, {"1:0", "25%~:0,1"}, {"1:0", "25%~:0,1"}}
	for i := range want {
		part := partOf(u, i, len(want))
		for k, r := range part.Reserves {
			if r.String() != want[i][k] {
				t.Errorf("partition %d keeps %s of %s, want %s", i, r, r.Queue, want[i][k])
			}
		}
	}
	if u.Reserves[0].Slots != 4 {
		t.Errorf("the update itself was changed: %+v", u.Reserves)
	}
}
