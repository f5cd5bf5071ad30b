// Package command is the command line of headgate: it puts the commands of its rooms under one root, and turns how they end into an
// exit code (package cli). It exists so that main is one call, and so that tests can run whole commands without a process of their own.
//
//	jobs                    enqueue, job, dead, redrive: one job, or many
//	ops                     queue, breaker, pause, resume, holds, drain, explain, audit, doctor, migrate
//	policies                policy, limit, tenant, tier, downstream: the rules in force
//	setup                   config, key: what processes are told
//	work serve demo replay  the commands of these names
package command
