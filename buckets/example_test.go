package buckets_test

import (
	"fmt"
	"time"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/buckets"
)

// A job passes its tenant's and its queue's bucket or none of them.
func ExampleSet_Take() {
	limits := [admission.Levels]admission.Limit{
		admission.LevelGlobal:   {Disabled: true},
		admission.LevelTenant:   admission.PerSecond(200).WithBurst(50),
		admission.LevelQueue:    {Tokens: 60, Per: time.Minute, Burst: 3},
		admission.LevelPriority: {Disabled: true},
	}
	path := buckets.AppendPath(nil, limits, "acme", "mail", admission.High)
	now := buckets.InstantOf(time.Date(2026, 7, 1, 12, 0, 0, 0, time.UTC))
	const unchanged = 0

	var set buckets.Set
	for _, cost := range []admission.Tokens{2, 2, 4} {
		if err := set.Take(now, unchanged, path, cost).Err(); err != nil {
			fmt.Println(err)
			continue
		}
		fmt.Println("admitted for", cost)
	}
	text, _ := set.Bucket("acme:mail").MarshalText()
	fmt.Printf("acme holds %d, acme:mail is stored as %s\n", set.LevelAt(now, unchanged, path[0]).Tokens(), text)
	// Output:
	// admitted for 2
	// job refused: scope acme:mail holds 1 tokens, retry after 1s
	// job refused for good: cost is above the burst of 3 tokens of scope acme:mail
	// acme holds 48, acme:mail is stored as 1000000:1782907200000000:2000000:1
}
