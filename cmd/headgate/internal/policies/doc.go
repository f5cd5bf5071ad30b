// Package policies holds the commands of headgate about the policy: whole documents (policy, with its dry runs, roll-outs and versions), and
// parts of one: a limit, a tenant, a tier, a downstream, the settings of a queue (file part has what these share).
package policies
