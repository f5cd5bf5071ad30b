package cli

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/rs/zerolog"
	"github.com/spf13/cobra"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/cmd/headgate/internal/logs"
	"github.com/headgate/headgate/cmd/headgate/internal/report"
)

// PlayFlags are the flags of commands that run jobs to be looked at, on a Redis of their own unless one is named.
type PlayFlags struct {
	Redis string
	JSON  bool
	Keep  bool
	log   string
}

// Add adds the flags to a command.
func (f *PlayFlags) Add(c *cobra.Command) {
	flags := c.Flags()
	flags.StringVar(&f.Redis, "redis", "", "`URL` of the Redis to use, redis://host:6379 or host:port; by default a private one is started")
	flags.BoolVar(&f.JSON, "json", false, "end with one JSON object on standard output; everything else goes to standard error")
	flags.BoolVar(&f.Keep, "keep", false, "leave the keys of the run in the Redis of --redis, to look at")
	flags.StringVar(&f.log, "log", "error", "`LEVEL` of the log on standard error: "+strings.Join(logs.Levels, ", "))
}

// Logger returns the logger of --log.
func (f *PlayFlags) Logger(to io.Writer) (zerolog.Logger, error) { return newLogger(to, f.log) }

// newLogger returns a logger of one of logs.Levels.
func newLogger(to io.Writer, name string) (zerolog.Logger, error) {
	if !slices.Contains(logs.Levels, name) {
		return zerolog.Nop(), Usage(&admission.FieldError{Field: "--log", Value: fmt.Sprintf("%q", name), Allowed: "one of " + strings.Join(logs.Levels, ", ")})
	}
	if name == logs.Levels[0] {
		return zerolog.Nop(), nil
	}
	level, err := zerolog.ParseLevel(name)
	return zerolog.New(to).Level(level).With().Timestamp().Logger(), err
}

// errNotConserved is a failure that comes after the report.
var errNotConserved = errors.New("the books do not balance: Redis does not account for every job that was admitted")

// Verdict is the error of a run that was reported and is not as it should be.
func Verdict(s report.Summary) error {
	var bad []error
	if !s.Conserved {
		bad = append(bad, errNotConserved)
	}
	if s.Interrupted {
		bad = append(bad, ErrInterrupted)
	}
	return errors.Join(bad...)
}
