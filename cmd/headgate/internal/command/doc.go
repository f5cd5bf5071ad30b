// Package command is the command line of headgate: flags, their validation, exit codes. It exists so that main is one
// call, and so that tests can run whole commands without a process of their own.
//
// Exit codes: 0 all is well, 1 something failed, 2 the command line is wrong, 3 there is nothing like that, the answer is
// no, or some jobs were not let in.
package command
