package daemon

import (
	"context"
	"maps"
	"os"
	"os/signal"
	"strings"
	"sync"
	"syscall"

	"github.com/rs/zerolog"

	"github.com/headgate/headgate/cmd/headgate/internal/cli"
	"github.com/headgate/headgate/cmd/headgate/internal/config"
	"github.com/headgate/headgate/cmd/headgate/internal/logs"
)

// follower puts changes of the configuration in force while a process runs. Its methods are for one goroutine.
type follower struct {
	target   *cli.Target
	logs   *logs.Logs
	logger zerolog.Logger
	// sections are those that say something to the process.
	sections []string
	// apply puts in force what is the process's own, all of it or, with an error, nothing.
	apply func(ctx context.Context, next *config.Loaded) error
	// started is what the process was made with, last what was read last and was right.
	started, last *config.Loaded
}

// start follows in a goroutine, until the function that it returns is called. Where there is no file, nothing can change,
// and SIGHUP ends the process as ever.
func (f *follower) start(ctx context.Context) (stop func()) {
	known := f.started.Contents()
	if len(known) == 0 {
		return func() {}
	}
	ctx, cancel := context.WithCancel(ctx)
	asked := make(chan os.Signal, 1)
	signal.Notify(asked, syscall.SIGHUP)
	var group sync.WaitGroup
	group.Go(func() {
		warn := func(err error) { f.logger.Warn().Err(err).Msg("configuration is not watched") }
		config.Watch(ctx, known, asked, warn, func() config.Contents { return f.reload(ctx) })
	})
	return func() {
		signal.Stop(asked)
		cancel()
		group.Wait()
	}
}

// reload reads the configuration anew and puts in force what can be; all of it or, if anything is wrong, nothing.
func (f *follower) reload(ctx context.Context) config.Contents {
	next, err := f.target.Read()
	known := f.last.Contents()
	maps.Copy(known, next.Contents())
	if err == nil {
		err = f.apply(ctx, next)
	}
	if err != nil {
		f.logger.Error().Strs("problems", strings.Split(err.Error(), "\n")).Msg("configuration is wrong: the old one stays in force")
		return known
	}
	f.logs.Apply(next.Logs())
	live, _ := f.last.Changes(next, f.sections)
	_, fixed := f.started.Changes(next, f.sections)
	f.last = next
	for _, path := range fixed {
		f.logger.Warn().Str("option", path).Msg("option has changed and keeps its old value until a restart")
	}
	f.logger.Info().Strs("changed", live).Msg("configuration read anew")
	return next.Contents()
}
