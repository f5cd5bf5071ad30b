package policy_test

import (
	"fmt"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/policy"
)

// An operator's document fills in over the built-in policy.
func Example() {
	document := `{
		"version": 1,
		"tenants": {"acme": {"tier": "premium", "priority_weights": {"high": 4}}},
		"queue_limits": {"acme:mail": {"tokens": 300, "per": "1m", "burst": 75}}
	}`
	p, err := policy.Unmarshal([]byte(document))
	if err != nil {
		fmt.Println(err)
		return
	}
	compiled, err := p.Prepare()
	if err != nil {
		fmt.Println(err)
		return
	}
	for level, limit := range compiled.LimitsFor("acme", "mail", admission.High) {
		if !limit.Disabled {
			fmt.Printf("%s: %d per %s, burst %d\n", admission.Level(level), limit.Tokens, limit.Per, limit.Burst)
		}
	}
	for share, weight := range compiled.ConfiguredWeights() {
		fmt.Printf("%s has weight %d in class %s\n", share.Tenant, weight, share.Class)
	}

	_, err = policy.Unmarshal([]byte(`{"tenants": {"acme": {"tier": "gold", "priority_weights": {"high": 0}}}}`))
	fmt.Println(err)
	// Output:
	// tenant: 400 per 1s, burst 100
	// queue: 300 per 1m0s, burst 75
	// acme has weight 4 in class high
	// acme has weight 2 in class medium
	// invalid tenants.acme.tier "gold": allowed is one of "basic", "premium", "standard"
	// invalid tenants.acme.priority_weights.high 0: allowed is 1 to 1000
}

func ExampleClassOfNumber() {
	for _, number := range []int{0, 5, 7, 10} {
		class, _ := policy.ClassOfNumber(number, admission.DefaultClasses())
		fmt.Println(number, class)
	}
	// Output:
	// 0 low
	// 5 medium
	// 7 high
	// 10 high
}
