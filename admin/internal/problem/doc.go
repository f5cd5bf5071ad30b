// Package problem is how the admin API says that a call failed: a problem details object (RFC 9457), with the id of the
// request that it is about. Its types are URNs, since nobody has to fetch them; docs/API.md says what each means.
package problem
