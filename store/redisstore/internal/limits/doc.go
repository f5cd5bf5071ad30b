// Package limits is the token buckets of one partition without jobs, what is counted of their decisions, and rights that are leased.
package limits
