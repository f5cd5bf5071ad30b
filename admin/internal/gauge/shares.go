package gauge

import (
	"strconv"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/headgate/headgate/store"
)

// MaxShares is the largest number of series of shares, a partition of a bound each: the global limit and the first bounds by name
// that go into it whole have some, one bound at least.
const MaxShares = 2048

var shareDesc = prometheus.NewDesc("headgate_share_ratio",
	"Fraction that a partition has of what all divide among them: the cap of a queue (q:) or downstream (d:), the rate of a downstream (s:), the global limit if there is one (global).",
	[]string{"bound", "partition"}, nil)

func collectShares(to chan<- prometheus.Metric, shares []store.Share) {
	left := MaxShares
	for i, share := range shares {
		if left -= len(share.Parts); left < 0 && i > 0 {
			return
		}
		for partition, part := range share.Parts {
			gaugeOf(to, shareDesc, part, string(share.Bound), strconv.Itoa(partition))
		}
	}
}
