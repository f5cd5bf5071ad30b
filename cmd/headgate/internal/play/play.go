package play

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/rs/zerolog"
	"github.com/spf13/cobra"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/cmd/headgate/internal/cli"
	"github.com/headgate/headgate/cmd/headgate/internal/logs"
)

// common are the flags of commands that run jobs.
type common struct {
	redis string
	json  bool
	keep  bool
	log   string
}

func (f *common) add(c *cobra.Command) {
	flags := c.Flags()
	flags.StringVar(&f.redis, "redis", "", "`URL` of the Redis to use, redis://host:6379 or host:port; by default a private one is started")
	flags.BoolVar(&f.json, "json", false, "end with one JSON object on standard output; everything else goes to standard error")
	flags.BoolVar(&f.keep, "keep", false, "leave the keys of the run in the Redis of --redis, to look at")
	flags.StringVar(&f.log, "log", "error", "`LEVEL` of the log on standard error: "+strings.Join(logs.Levels, ", "))
}

// logger returns the logger of --log.
func (f *common) logger(to io.Writer) (zerolog.Logger, error) { return newLogger(to, f.log) }

// newLogger returns a logger of one of logs.Levels.
func newLogger(to io.Writer, name string) (zerolog.Logger, error) {
	if !slices.Contains(logs.Levels, name) {
		return zerolog.Nop(), cli.Usage(&admission.FieldError{Field: "--log", Value: fmt.Sprintf("%q", name), Allowed: "one of " + strings.Join(logs.Levels, ", ")})
	}
	if name == logs.Levels[0] {
		return zerolog.Nop(), nil
	}
	level, err := zerolog.ParseLevel(name)
	return zerolog.New(to).Level(level).With().Timestamp().Logger(), err
}
