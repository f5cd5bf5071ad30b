package ledger

import "math"

// percentile returns the smallest of the sorted values that is not below the given part of all, the zero value of
// none.
func percentile[T any](sorted []T, part float64) T {
	if len(sorted) == 0 {
		var zero T
		return zero
	}
	rank := int(math.Ceil(part*float64(len(sorted)))) - 1
	return sorted[max(0, min(rank, len(sorted)-1))]
}
