//go:build !unix

package admin

// descriptors returns how many files and connections the process may have open, 0 if nobody knows.
func descriptors() int { return 0 }
