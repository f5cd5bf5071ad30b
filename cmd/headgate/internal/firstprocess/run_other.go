//go:build !linux

package firstprocess

// Run does nothing.
func Run() {}
