package command

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"
	"unicode"

	"github.com/spf13/cobra"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/store"
)

// exitNothing is the exit code of a command that found nothing, or was refused: all works, and the answer is no.
const exitNothing = 3

// nothingError is such an answer.
type nothingError struct{ cause error }

func (e *nothingError) Error() string { return e.cause.Error() }
func (e *nothingError) Unwrap() error { return e.cause }

func nothing(format string, args ...any) error {
	return &nothingError{cause: fmt.Errorf(format, args...)}
}

// none says that a list is empty; that is no failure.
func none(c *cobra.Command, why string) { fmt.Fprintln(c.ErrOrStderr(), "headgate:", why) }

// failureCode is the exit code of a command that ended with an error and was called rightly.
func failureCode(err error) int {
	if _, no := errors.AsType[*nothingError](err); no {
		return exitNothing
	}
	if _, refused := errors.AsType[*refusedError](err); refused {
		return exitRefused
	}
	return exitFailure
}

// operator are the flags of commands that look at a deployment, or change it.
type operator struct {
	site

	json bool
}

func (o *operator) add(c *cobra.Command) {
	flags := c.PersistentFlags()
	o.site.add(flags)
	flags.BoolVar(&o.json, "json", false, "write one JSON object to standard output; everything else goes to standard error")
}

// with opens the store for the time of a call. What the store does not know becomes the exit code 3, a bad name or
// cursor the exit code 2.
func (o *operator) with(c *cobra.Command, do func(context.Context, store.Deployment) error) error {
	return o.site.with(c.Context(), c.ErrOrStderr(), func(ctx context.Context, s store.Deployment) error {
		err := do(ctx, s)
		bad, invalid := errors.AsType[*admission.FieldError](err)
		switch {
		case errors.Is(err, admission.ErrUnknownJob), errors.Is(err, admission.ErrEnded), errors.Is(err, admission.ErrNotDead):
			return nothing("%w", err)
		case errors.Is(err, store.ErrUnknownQueue):
			return nothing("%w: headgate queue list tells which there are", err)
		case errors.Is(err, store.ErrNoBreaker):
			return nothing("%w: headgate breaker list tells which there are", err)
		case invalid:
			return usage(bad)
		}
		return err
	})
}

// print writes a value as JSON, or as table writes it.
func (o *operator) print(c *cobra.Command, value any, table func(io.Writer)) error {
	out := c.OutOrStdout()
	if !o.json {
		table(out)
		return nil
	}
	encoder := json.NewEncoder(out)
	encoder.SetIndent("", "  ")
	encoder.SetEscapeHTML(false)
	return encoder.Encode(value)
}

// parent returns a command that only holds others.
func parent(use, short, long, example string) *cobra.Command {
	return &cobra.Command{
		Use: use, Short: short, Long: long, Example: example, Args: noArgs,
		RunE: func(c *cobra.Command, _ []string) error { return c.Help() },
	}
}

// keyArgs takes TENANT and ID.
func keyArgs(c *cobra.Command, args []string) error {
	if len(args) == 2 {
		return nil
	}
	return usage(fmt.Errorf("%s takes two arguments, TENANT and ID, got %d", c.CommandPath(), len(args)))
}

func keyOf(args []string) admission.Key { return admission.Key{Tenant: args[0], ID: args[1]} }

// fieldError is a bad flag.
func fieldError(flag, value, allowed string) error {
	return usage(&admission.FieldError{Field: "--" + flag, Value: value, Allowed: allowed})
}

// clock writes a time for people, in UTC; zero is a dash.
func clock(t time.Time) string {
	if t.IsZero() {
		return "-"
	}
	return t.UTC().Format("2006-01-02 15:04:05Z")
}

// shownText is how much of a text a table shows.
const shownText = 80

// tame makes a text that anybody may have written fit for a terminal: no control characters, no more than most runes; 0
// is no bound.
func tame(text string, most int) string {
	text = strings.TrimSpace(strings.Map(func(r rune) rune {
		if unicode.IsControl(r) || !unicode.IsPrint(r) {
			return ' '
		}
		return r
	}, text))
	if runes := []rune(text); most > 0 && len(runes) > most {
		return string(runes[:most-1]) + "…"
	}
	return text
}
