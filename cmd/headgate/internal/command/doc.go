// Package command is the command line of headgate: it puts the commands of its rooms under one root, and turns how they end into an
// exit code (package cli). It exists so that main is one call, and so that tests can run whole commands without a process of their own.
//
//	jobs      enqueue, job, dead, redrive                                   one job, or many
//	ops       queue, breaker, pause, resume, holds, drain, explain, audit, doctor, migrate
//	policies  policy, limit, tenant, tier, downstream                       the rules in force
//	daemon    worker, serve                                                 processes that stay
//	setup     config, key                                                   what those are told
//	play      demo, replay                                                  runs on a private Redis
package command
