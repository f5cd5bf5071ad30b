// Package cli is what the commands of headgate have in common.
//
//	target    which deployment a command works on, from its flags and the configuration    Target
//	operator  a command that looks at a deployment or changes it, and how it prints         Operator
//	follower  puts changes of the configuration in force while a command runs               Follower
//	play      a command that runs jobs to be looked at, on a Redis of its own               PlayFlags
//	cli       the exit codes, the errors that mean them, the checks of arguments
//	reason    who does it and why, for the audit
//	text      times, gates and texts of others, fit for a terminal
//
// Exit codes: 0 all is well, 1 something failed or a file is wrong, 2 the command line is wrong, 3 there is nothing like that,
// the answer is no, or some jobs were not let in.
package cli
