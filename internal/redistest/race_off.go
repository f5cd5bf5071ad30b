//go:build !race

package redistest

// walks is as many as `make breaks` was caught with.
const walks = "50"

// Some returns how often a test of random steps goes on: all of it.
func Some(often int) int { return often }
