package policy

import (
	"testing"

	"github.com/headgate/headgate/admission"
)

// TestLeastBurst is that of what limits there are; of the global one a partition has a part.
func TestLeastBurst(t *testing.T) {
	t.Parallel()
	none := admission.Limit{Disabled: true}
	limits := Limits{none, none, none, none}
	if got := limits.LeastBurst(1); got != 0 {
		t.Errorf("of none it is %d", got)
	}
	limits[admission.LevelGlobal] = admission.PerSecond(1).WithBurst(90)
	limits[admission.LevelQueue] = admission.PerSecond(1).WithBurst(40)
	for parts, want := range map[int]admission.Tokens{1: 40, 3: 30, 100: 1} {
		if got := limits.LeastBurst(parts); got != want {
			t.Errorf("of %d partitions it is %d, want %d", parts, got, want)
		}
	}
}
