//go:build !race

package redistest

const walks = "50"
