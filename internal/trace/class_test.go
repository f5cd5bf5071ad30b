package trace

import (
	"fmt"
	"testing"

	"github.com/headgate/headgate/admission"
)

func TestClassesAreEvenOverTenantsAndStable(t *testing.T) {
	t.Parallel()
	classes := admission.DefaultClasses()
	counts := map[admission.Priority]int{}
	moved := 0
	for i := range 3000 {
		tenant := fmt.Sprintf("G%04d", i)
		class := ClassOf(tenant, 1, classes)
		counts[class]++
		if ClassOf(tenant, 1, classes) != class {
			t.Fatalf("%s has two classes", tenant)
		}
		if ClassOf(tenant, 2, classes) != class {
			moved++
		}
	}
	for _, class := range classes {
		if n := counts[class.Name]; n < 900 || n > 1100 {
			t.Errorf("%d of 3000 tenants are %s", n, class.Name)
		}
	}
	if moved < 1500 {
		t.Errorf("another seed moved %d of 3000 tenants", moved)
	}
}
