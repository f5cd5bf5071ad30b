package redisstore

import (
	"testing"

	"pgregory.net/rapid"

	"github.com/headgate/headgate/store"
)

func waiting(tenants float64) store.QueueDemand {
	return store.QueueDemand{{Weight: 1, Runnable: tenants}}
}

func TestDivide(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		claims []claim
		want   []int
	}{
		"an idle one gives half of what it has": {[]claim{{units: 50, wanted: waiting(1)}, {units: 50}}, []int{75, 25}},
		"one keeps what it uses":                {[]claim{{units: 50, wanted: waiting(1)}, {units: 50, used: 50}}, []int{50, 50}},
		"tenants divide, not jobs":              {[]claim{{units: 50, used: 50, wanted: waiting(3)}, {units: 50, used: 50, wanted: waiting(1)}}, []int{74, 26}},
		"the least is kept":                     {[]claim{{units: 98, wanted: waiting(1)}, {units: 2}}, []int{98, 2}},
		"classes go by the pattern": {
			[]claim{{units: 50, wanted: store.QueueDemand{{Weight: 3, Runnable: 9}, {Weight: 1, Runnable: 0}}}, {units: 50, wanted: store.QueueDemand{{Weight: 3, Runnable: 0}, {Weight: 1, Runnable: 1}}}}, []int{74, 26},
		},
		"nobody wants more":              {[]claim{{units: 90, used: 10}, {units: 10}}, []int{85, 50}},
		"what is used is not taken back": {[]claim{{units: 90, used: 90}, {units: 10}}, []int{90, 50}},
	} {
		for p, got := range divide(100, 2, c.claims) {
			if got != c.want[p] {
				t.Errorf("%s: partition %d is to have %d, want %d", name, p, got, c.want[p])
			}
		}
	}
}

// TestDivideIsASplit asks that no more is given than there is, none less than the least, and that after some steps nine tenths are
// with those that want more, or that all is even again.
func TestDivideIsASplit(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		n := rapid.IntRange(2, 8).Draw(rt, "partitions")
		total := rapid.IntRange(40*n, 5000).Draw(rt, "total")
		least := max(1, total/n/leastPart)
		claims := make([]claim, n)
		hungry := 0
		for p := range claims {
			claims[p].units = total / n
			if rapid.Bool().Draw(rt, "wanted") {
				claims[p].wanted = waiting(float64(rapid.IntRange(1, 1000).Draw(rt, "tenants")))
				hungry++
			}
		}
		steps := 8
		if hungry == 0 {
			claims[0].units, steps = total-(n-1)*least, 100
			for p := 1; p < n; p++ {
				claims[p].units = least
			}
		}
		for range steps {
			targets := divide(total, least, claims)
			sum, wanting := 0, 0
			for p := range claims {
				if targets[p] < least {
					rt.Fatalf("partition %d of %d is to have %d", p, n, targets[p])
				}
				sum += targets[p]
				if claims[p].wanted != nil {
					wanting += targets[p]
				}
			}
			if hungry > 0 && (sum > total || wanting < sum/2 && hungry*2 >= n) {
				rt.Fatalf("%v of %d", targets, total)
			}
			left := total
			for p := range claims { // The budget of a Balancer: first less, then more.
				claims[p].units = min(claims[p].units, targets[p])
				left -= claims[p].units
			}
			for p := range claims {
				more := min(left, targets[p]-claims[p].units)
				claims[p].units, left = claims[p].units+more, left-more
			}
		}
		wanting := 0
		for p := range claims {
			if claims[p].wanted != nil {
				wanting += claims[p].units
			} else if hungry == 0 && claims[p].units != total/n {
				rt.Fatalf("partition %d has %d of %d in %d", p, claims[p].units, total, n)
			}
		}
		if hungry > 0 && wanting < total*9/10 {
			rt.Fatalf("those that want more have %d of %d: %+v", wanting, total, claims)
		}
	})
}
