// Package gates is what operators stop in one partition, and what it has of the bounds that all partitions share.
package gates
