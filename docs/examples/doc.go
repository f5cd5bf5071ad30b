// Package examples has the Go of the guides: each snippet of a page in docs, or of the README, is a region of a file here, between the
// comments snippet:begin NAME and snippet:end. So all of it is compiled and run by a test.
//
// After a change: go test ./internal/house -run Snippets -update
package examples
