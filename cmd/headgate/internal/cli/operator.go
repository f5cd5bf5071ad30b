package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/internal/shown"
	"github.com/headgate/headgate/store"
)

// NothingError is an answer: all works, and there is nothing like that, or it is no.
type NothingError struct{ cause error }

func (e *NothingError) Error() string { return e.cause.Error() }
func (e *NothingError) Unwrap() error { return e.cause }

// Nothing is the answer no: the exit code is 3.
func Nothing(format string, args ...any) error {
	return &NothingError{cause: fmt.Errorf(format, args...)}
}

// None says that a list is empty; that is no failure.
func None(c *cobra.Command, why string) { fmt.Fprintln(c.ErrOrStderr(), "headgate:", why) }

// fileError is a file that is wrong. The command line, which names it, is not.
type fileError struct {
	file  string
	cause error
}

func (e *fileError) Error() string { return e.file + ": " + e.cause.Error() }
func (e *fileError) Unwrap() error { return e.cause }

// InFile says of an error for which what a file says is to blame which file that is; "-" is standard input. Others stay as they are.
func InFile(what, name string, err error) error {
	if !errors.Is(err, admission.ErrInvalid) {
		return err
	}
	if name == "-" {
		name = "of standard input"
	}
	return &fileError{file: what + " " + name, cause: err}
}

// failureCode is the exit code of a command that ended with an error and was called rightly.
func failureCode(err error) int {
	_, no := errors.AsType[*NothingError](err)
	_, refused := errors.AsType[*RefusedError](err)
	if no || refused {
		return ExitNothing
	}
	return ExitFailure
}

// Operator are the flags of commands that look at a deployment, or change it.
type Operator struct {
	Target

	json bool
}

// Add adds the flags to a command and to those below it.
func (o *Operator) Add(c *cobra.Command) {
	flags := c.PersistentFlags()
	o.Target.Add(flags)
	flags.BoolVar(&o.json, "json", false, "write one JSON object to standard output; everything else goes to standard error")
}

// With opens the store for the time of a call. What the store does not know becomes the exit code 3, a bad name or
// cursor the exit code 2, unless it is a file that says so.
func (o *Operator) With(c *cobra.Command, do func(context.Context, store.Deployment) error) error {
	return o.Target.With(c.Context(), c.ErrOrStderr(), func(ctx context.Context, s store.Deployment) error {
		err := do(ctx, s)
		bad, invalid := errors.AsType[*admission.FieldError](err)
		_, ofFile := errors.AsType[*fileError](err)
		switch {
		case ofFile:
			return err
		case errors.Is(err, admission.ErrUnknownJob), errors.Is(err, admission.ErrEnded), errors.Is(err, admission.ErrNotDead):
			return Nothing("%w", err)
		case errors.Is(err, store.ErrUnknownQueue):
			return Nothing("%w: headgate queue list tells which there are", err)
		case errors.Is(err, shown.ErrNoLoad):
			return Nothing("%w: headgate load tells which there are", err)
		case errors.Is(err, store.ErrNoBreaker):
			return Nothing("%w: headgate breaker list tells which there are", err)
		case errors.Is(err, store.ErrNotAdaptive):
			return Nothing("%w: headgate adaptive list tells which there are", err)
		case invalid:
			return Usage(bad)
		}
		return err
	})
}

// AsJSON reports whether JSON is asked for.
func (o *Operator) AsJSON() bool { return o.json }

// Print writes a value as JSON, or as table writes it.
func (o *Operator) Print(c *cobra.Command, value any, table func(io.Writer)) error {
	return Print(c, o.json, value, table)
}

// Print is Operator.Print of a command that asks no deployment.
func Print(c *cobra.Command, asJSON bool, value any, table func(io.Writer)) error {
	out := c.OutOrStdout()
	if !asJSON {
		table(out)
		return nil
	}
	encoder := json.NewEncoder(out)
	encoder.SetIndent("", "  ")
	encoder.SetEscapeHTML(false)
	return encoder.Encode(value)
}

// Parent returns a command that only holds others.
func Parent(use, short, long, example string) *cobra.Command {
	return &cobra.Command{
		Use: use, Short: short, Long: long, Example: example, Args: NoArgs,
		RunE: func(c *cobra.Command, _ []string) error { return c.Help() },
	}
}

// KeyArgs takes TENANT and ID, or TENANT:ID as commands print it.
func KeyArgs(c *cobra.Command, args []string) error {
	if len(args) == 2 || len(args) == 1 && strings.Contains(args[0], ":") {
		return nil
	}
	return Usage(fmt.Errorf("%s takes two arguments, TENANT and ID, or one, TENANT:ID, got %d", c.CommandPath(), len(args)))
}

// KeyOf is the key that the arguments name, TENANT and ID or TENANT:ID.
func KeyOf(args []string) admission.Key {
	if len(args) == 1 {
		return KeysOf(args)[0]
	}
	return admission.Key{Tenant: args[0], ID: args[1]}
}

// KeysOf are the keys that the arguments name, TENANT and ids of it, or a TENANT:ID each. No tenant has a colon; an id may.
func KeysOf(args []string) []admission.Key {
	keys := make([]admission.Key, 0, len(args))
	if slices.ContainsFunc(args, func(name string) bool { return !strings.Contains(name, ":") }) {
		for _, id := range args[1:] {
			keys = append(keys, admission.Key{Tenant: args[0], ID: id})
		}
		return keys
	}
	for _, name := range args {
		tenant, id, _ := strings.Cut(name, ":")
		keys = append(keys, admission.Key{Tenant: tenant, ID: id})
	}
	return keys
}

// FieldError is a bad flag.
func FieldError(flag, value, allowed string) error {
	return Usage(&admission.FieldError{Field: "--" + flag, Value: value, Allowed: allowed})
}
