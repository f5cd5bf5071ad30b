//go:build race

package redistest

// walks is half of what it is without the race detector, which makes a walk three times as dear and finds nothing in what one goroutine does.
const walks = "25"
