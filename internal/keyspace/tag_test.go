package keyspace

import (
	"fmt"
	"testing"
)

func TestSlotsAreThoseOfRedis(t *testing.T) {
	t.Parallel()
	for tag, want := range map[string]int{"123456789": 0x31c3, "0": 13907, "user1000": 3443, "": 0} {
		if got := SlotOf(tag); got != want {
			t.Errorf("slot of %q is %d, want %d", tag, got, want)
		}
	}
}

func TestATagStaysForEver(t *testing.T) {
	t.Parallel()
	for partition, want := range map[int]string{0: "hg{0}:state", 1: "hg{1.723}:state", 2: "hg{2.526}:state", 255: "hg{255.17}:state"} {
		if got := New("hg", partition).State(); got != want {
			t.Errorf("partition %d is at %s, want %s", partition, got, want)
		}
	}
}

func TestTagsSpreadOverMasters(t *testing.T) {
	t.Parallel()
	const most = 256
	slots := make([]int, most)
	for i := range slots {
		slots[i] = SlotOf(tag(i))
	}
	for masters := 3; masters <= 16; masters++ {
		counts := make([]int, masters)
		for i, slot := range slots {
			counts[slot*masters/Slots]++
			partitions := i + 1
			low, high := counts[0], counts[0]
			for _, n := range counts {
				low, high = min(low, n), max(high, n)
			}
			if low < partitions/masters-2 || high > (partitions+masters-1)/masters+2 {
				t.Errorf("%d partitions on %d masters: %v", partitions, masters, counts)
			}
		}
	}
}

func TestTenantsSpreadAndFewMove(t *testing.T) {
	t.Parallel()
	const tenants = 20_000
	for partitions := 1; partitions <= 64; partitions++ {
		counts := make([]int, partitions)
		for i := range tenants {
			name := fmt.Sprintf("tenant-%d", i)
			at, grown := Of(name, partitions), Of(name, partitions+1)
			counts[at]++
			if grown != at && grown != partitions {
				t.Fatalf("%s moves from %d to %d when partition %d is added", name, at, grown, partitions)
			}
		}
		even := tenants / partitions
		for at, n := range counts {
			if n < even*7/10 || n > even*13/10 {
				t.Errorf("partition %d of %d has %d tenants, %d would be even", at, partitions, n, even)
			}
		}
	}
}
