// Package audit keeps what operators did, up to so many entries. What one act does in several calls is one entry.
package audit
