// Package command is the load test's command line: it reads flags, runs what they ask for and prints what came of it.
//
//	exit code  0  every promise held
//	           1  a promise was broken, the run was interrupted or it could not be carried out
//	           2  a bad flag: the error names it, its value and what is allowed
//
// Results go to standard output, all else to standard error.
package command
