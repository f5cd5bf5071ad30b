// Package explain answers the question of the person on call: why does this wait, or why was it refused? Of a job, a
// tenant, a scope or a downstream it tells what holds it back, until when, which rule of the policy in force decided that
// (an override, a tier's default, or what is built in), who changed that rule last, and what would change it.
//
// It looks and changes nothing. What it tells is not of one instant: a job may move between two looks. The command line
// (headgate explain) and the admin API show the same Explanation.
package explain
