package cli

import (
	"context"
	"maps"
	"os"
	"os/signal"
	"strings"
	"sync"
	"syscall"

	"github.com/rs/zerolog"

	"github.com/headgate/headgate/cmd/headgate/internal/config"
	"github.com/headgate/headgate/cmd/headgate/internal/logs"
)

// Follower puts changes of the configuration in force while a process runs. Its methods are for one goroutine.
type Follower struct {
	Target *Target
	Logs   *logs.Logs
	Logger zerolog.Logger
	// Sections are those that say something to the process.
	Sections []string
	// Apply puts in force what is the process's own, all of it or, with an error, nothing.
	Apply func(ctx context.Context, next *config.Loaded) error
	// Started is what the process was made with, Last what was read last and was right.
	Started, Last *config.Loaded
}

// Start follows in a goroutine, until the function that it returns is called. Where there is no file, nothing can change,
// and SIGHUP ends the process as ever.
func (f *Follower) Start(ctx context.Context) (stop func()) {
	known := f.Started.Contents()
	if len(known) == 0 {
		return func() {}
	}
	ctx, cancel := context.WithCancel(ctx)
	asked := make(chan os.Signal, 1)
	signal.Notify(asked, syscall.SIGHUP)
	var group sync.WaitGroup
	group.Go(func() {
		warn := func(err error) { f.Logger.Warn().Err(err).Msg("configuration is not watched") }
		config.Watch(ctx, known, asked, warn, func() config.Contents { return f.reload(ctx) })
	})
	return func() {
		signal.Stop(asked)
		cancel()
		group.Wait()
	}
}

// reload reads the configuration anew and puts in force what can be; all of it or, if anything is wrong, nothing.
func (f *Follower) reload(ctx context.Context) config.Contents {
	next, err := f.Target.Read()
	known := f.Last.Contents()
	maps.Copy(known, next.Contents())
	if err == nil {
		err = f.Apply(ctx, next)
	}
	if err != nil {
		f.Logger.Error().Strs("problems", strings.Split(err.Error(), "\n")).Msg("configuration is wrong: the old one stays in force")
		return known
	}
	f.Logs.Apply(next.Logs())
	live, _ := f.Last.Changes(next, f.Sections)
	_, fixed := f.Started.Changes(next, f.Sections)
	f.Last = next
	for _, path := range fixed {
		f.Logger.Warn().Str("option", path).Msg("option has changed and keeps its old value until a restart")
	}
	f.Logger.Info().Strs("changed", live).Msg("configuration read anew")
	return next.Contents()
}
