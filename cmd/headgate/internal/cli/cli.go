package cli

import (
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/internal/embedded"
)

// The exit codes.
const (
	ExitOK      = 0
	ExitFailure = 1
	ExitUsage   = 2
	// ExitNothing is that of a command that found nothing, or was refused: all works, and the answer is no.
	ExitNothing = 3
)

// usageError is a command line that is wrong.
type usageError struct{ cause error }

func (e *usageError) Error() string { return e.cause.Error() }

func (e *usageError) Unwrap() error { return e.cause }

// Usage makes an error one of the command line; nil stays nil.
func Usage(err error) error {
	if err == nil {
		return nil
	}
	return &usageError{cause: err}
}

// OneArg takes one argument. what names it, for the error.
func OneArg(what string) cobra.PositionalArgs { return Args(1, 1, what) }

// Args takes least to most arguments, two at most. what names them, for the error.
func Args(least, most int, what string) cobra.PositionalArgs {
	words := [...]string{"no argument", "one argument", "two arguments"}
	takes := words[most]
	switch {
	case least == 0:
		takes += " at most"
	case least < most:
		takes = "one or two arguments"
	}
	return func(c *cobra.Command, args []string) error {
		if len(args) >= least && len(args) <= most {
			return nil
		}
		return Usage(fmt.Errorf("%s takes %s, %s, got %d", c.CommandPath(), takes, what, len(args)))
	}
}

// FlagError says what is allowed for a flag whose value cannot be read: in which form, and what its usage says of it.
func FlagError(err error) error {
	bad, ok := errors.AsType[*pflag.InvalidValueError](err)
	if !ok {
		return err
	}
	flag := bad.GetFlag()
	_, allowed := pflag.UnquoteUsage(flag)
	switch flag.Value.Type() {
	case "duration":
		allowed = "a time such as " + times(bad.GetValue()) + ": " + allowed
	case "bool":
		allowed = "true or false"
	case "int", "int64", "uint64":
		allowed = "a whole number: " + allowed
	case "float64":
		allowed = "a number: " + allowed
	}
	return &admission.FieldError{Field: "--" + flag.Name, Value: strconv.Quote(bad.GetValue()), Allowed: allowed}
}

// times are examples of how a time is written, of what a text may have meant that is none: a number without a unit, or of days.
func times(text string) string {
	if days, of := strings.CutSuffix(text, "d"); of {
		if n, err := strconv.ParseUint(days, 10, 16); err == nil {
			return fmt.Sprintf("%dh", 24*n)
		}
	}
	if _, err := strconv.ParseUint(text, 10, 32); err == nil {
		return fmt.Sprintf("%ss, %sm or %sh", text, text, text)
	}
	return "500ms, 30s, 10m or 24h"
}

// ErrInterrupted is a failure that comes after the report.
var ErrInterrupted = errors.New("interrupted: the report is of what was done until then")

// RefusedError is a run that went well and did not get all jobs in.
type RefusedError struct{ Refused, Bad int }

func (e *RefusedError) Error() string {
	var parts []string
	if e.Refused > 0 {
		parts = append(parts, plural(e.Refused, "job was refused", "jobs were refused"))
	}
	if e.Bad > 0 {
		parts = append(parts, plural(e.Bad, "line is no job", "lines are no jobs"))
	}
	return strings.Join(parts, ", ")
}

func plural(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}

// Release is the newest one of CHANGELOG.md. A build of a later commit has its name too, and says which commit it is.
const Release = "v0.1.0"

// ShownBadRows is how many bad rows are reported one by one.
const ShownBadRows = 5

// Fail says what went wrong with a command, and returns the exit code.
func Fail(stderr io.Writer, c *cobra.Command, err error) int {
	for line := range strings.Lines(err.Error()) {
		fmt.Fprintf(stderr, "headgate: %s\n", strings.TrimRight(line, "\n"))
	}
	if _, wrong := errors.AsType[*usageError](err); wrong {
		fmt.Fprintf(stderr, "headgate: %s --help tells what it takes\n", c.CommandPath())
		return ExitUsage
	}
	if errors.Is(err, admission.ErrUnknownJob) {
		fmt.Fprintln(stderr, "headgate: it was refused, has another id or tenant, or ended longer ago than ids are remembered (dedup_window of the policy, 30s unless set)")
	}
	if advice := embedded.Advice(err); advice != "" && !strings.Contains(err.Error(), advice) {
		fmt.Fprintf(stderr, "headgate: about redis: %s\n", advice)
	}
	return failureCode(err)
}
