// Package policies is the versions of the policy in one partition, stored in one script or, where that would be long, in steps, and the
// audit of who did what.
package policies
