//go:build race

package redistest

// walks is a fifth of what it is without the race detector, which makes a walk three times as dear and finds nothing in what one goroutine does: a run of
// all tests is to take less than ten minutes.
const walks = "10"

// Some returns two fifths of how often a test of random steps goes on, for the same reasons.
func Some(often int) int { return often * 2 / 5 }
