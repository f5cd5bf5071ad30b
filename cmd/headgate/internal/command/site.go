package command

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"

	"github.com/rs/zerolog"
	"github.com/spf13/pflag"

	"github.com/headgate/headgate/cmd/headgate/internal/config"
	"github.com/headgate/headgate/cmd/headgate/internal/logs"
	"github.com/headgate/headgate/cmd/headgate/internal/spans"
	"github.com/headgate/headgate/internal/embedded"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/redisstore"
)

// redisVariable names the environment variable that stands in for --redis.
const redisVariable = "HEADGATE_REDIS"

// site is the deployment that a command works on, one that others use too, and the configuration that says where it is.
type site struct {
	file  string
	set   []string
	flags *pflag.FlagSet
	// paths are the options that the command has flags for; extra are others that its line gives.
	paths []string
	extra map[string]any
	// loaded is nil until load was called.
	loaded *config.Loaded
}

func (s *site) add(flags *pflag.FlagSet) {
	s.flags, s.paths = flags, config.SitePaths
	flags.String("redis", "", "`URL` of the Redis, redis://host:6379 or host:port (by default that of $"+redisVariable+" or the configuration)")
	flags.String("prefix", "", "`PREFIX` of the deployment's keys (default \"hg\")")
	flags.StringVar(&s.file, "config", "", "`FILE` of the configuration, YAML, TOML or JSON (by default that of $"+config.FileVariable+")")
	flags.StringArrayVar(&s.set, "set", nil, "`KEY=VALUE` of the configuration, as often as need be; headgate config reference lists the keys")
}

// load reads the configuration, once.
func (s *site) load() (*config.Loaded, error) {
	if s.loaded != nil {
		return s.loaded, nil
	}
	loaded, err := s.read()
	if err == nil {
		s.loaded = loaded
	}
	return loaded, err
}

// read reads the configuration as it is now. If it is wrong and only flags say so, the command line is.
func (s *site) read() (*config.Loaded, error) {
	sources := config.Sources{File: s.file, Environ: os.Environ(), Set: s.set, Flags: config.Given(s.flags, s.paths...)}
	maps.Copy(sources.Flags, s.extra)
	loaded, err := config.Load(sources)
	if err != nil && config.OnlyFlags(sources) {
		err = usage(err)
	}
	return loaded, err
}

// validate reports a configuration that is wrong, or a site that is nowhere.
func (s *site) validate() error {
	loaded, err := s.load()
	if err == nil && loaded.Config.Redis.URL == "" {
		return usage(errors.New("say which Redis with --redis, redis://host:6379 for one, or in " + redisVariable +
			": a private or embedded store holds nobody's jobs"))
	}
	return err
}

// open opens the Redis of the site.
func (s *site) open(ctx context.Context, notes io.Writer) (*embedded.Store, error) {
	if err := s.validate(); err != nil {
		return nil, err
	}
	writeDoubts(notes, s.loaded)
	where, err := s.loaded.Store(notes)
	if err != nil {
		return nil, err
	}
	opened, err := embedded.Open(ctx, where)
	if err != nil {
		return nil, fmt.Errorf("open the store: %w", err)
	}
	return opened, nil
}

// writeDoubts warns of variables that may be mistyped: they are ignored, because others may use names like that.
func writeDoubts(notes io.Writer, loaded *config.Loaded) {
	for _, doubt := range loaded.Doubts() {
		fmt.Fprintf(notes, "headgate: warning: %v It is ignored.\n", doubt)
	}
}

// producerLogger returns the logger of a producer. What a command writes says how it went, so it is silent unless a level for
// producers is given.
func (s *site) producerLogger(to io.Writer) zerolog.Logger {
	if !s.loaded.Given(config.PathProducerLevel) {
		return zerolog.Nop()
	}
	return logs.New(to, s.loaded.Logs()).Logger(logs.Producer)
}

// traces opens what sends traces, where the configuration says so. What is left of them has to be sent with Close.
func (s *site) traces(logger zerolog.Logger) (*spans.Exporter, error) {
	config, err := s.loaded.Traces()
	if err != nil {
		return nil, err
	}
	return spans.Open(config, logger)
}

// with opens the store for the time of a call.
func (s *site) with(ctx context.Context, notes io.Writer, do func(context.Context, store.Deployment) error) (err error) {
	opened, err := s.open(ctx, notes)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, opened.Close()) }()
	st, err := redisstore.Open(ctx, opened.Client(), s.loaded.Keys())
	if err != nil {
		return err
	}
	return do(ctx, st)
}
