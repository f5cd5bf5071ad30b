package cli

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

// RedisVariable names the environment variable that stands in for --redis.
const RedisVariable = "HEADGATE_REDIS"

// Target is the deployment that a command works on, one that others use too, and the configuration that says where it is.
type Target struct {
	File  string
	set   []string
	Flags *pflag.FlagSet
	// paths are the options that the command has flags for; extra are others that its line gives.
	Paths []string
	Extra map[string]any
	// loaded is nil until load was called.
	Loaded *config.Loaded
}

// Add adds the flags that say where the deployment is.
func (s *Target) Add(flags *pflag.FlagSet) {
	s.Flags, s.Paths = flags, config.SitePaths
	flags.String("redis", "", "`URL` of the Redis, redis://host:6379 or host:port (by default that of $"+RedisVariable+" or the configuration)")
	flags.String("prefix", "", "`PREFIX` of the deployment's keys (default \"hg\")")
	flags.StringVar(&s.File, "config", "", "`FILE` of the configuration, YAML, TOML or JSON (by default that of $"+config.FileVariable+")")
	flags.StringArrayVar(&s.set, "set", nil, "`KEY=VALUE` of the configuration, as often as need be; headgate config reference lists the keys")
}

// Load reads the configuration, once.
func (s *Target) Load() (*config.Loaded, error) {
	if s.Loaded != nil {
		return s.Loaded, nil
	}
	loaded, err := s.Read()
	if err == nil {
		s.Loaded = loaded
	}
	return loaded, err
}

// Read reads the configuration as it is now. If it is wrong and only flags say so, the command line is.
func (s *Target) Read() (*config.Loaded, error) {
	sources := config.Sources{File: s.File, Environ: os.Environ(), Set: s.set, Flags: config.Given(s.Flags, s.Paths...)}
	maps.Copy(sources.Flags, s.Extra)
	loaded, err := config.Load(sources)
	if err != nil && config.OnlyFlags(sources) {
		err = Usage(err)
	}
	return loaded, err
}

// Validate reports a configuration that is wrong, or a target that is nowhere.
func (s *Target) Validate() error {
	loaded, err := s.Load()
	if err == nil && loaded.Config.Redis.URL == "" {
		return Usage(errors.New("say which Redis with --redis, redis://host:6379 for one, or in " + RedisVariable +
			": a private or embedded store holds nobody's jobs"))
	}
	return err
}

// Open opens the Redis of the target.
func (s *Target) Open(ctx context.Context, notes io.Writer) (*embedded.Store, error) {
	if err := s.Validate(); err != nil {
		return nil, err
	}
	WriteDoubts(notes, s.Loaded)
	where, err := s.Loaded.Store(notes)
	if err != nil {
		return nil, err
	}
	opened, err := embedded.Open(ctx, where)
	if err != nil {
		return nil, fmt.Errorf("open the store: %w", err)
	}
	return opened, nil
}

// WriteDoubts warns of variables that may be mistyped: they are ignored, because others may use names like that.
func WriteDoubts(notes io.Writer, loaded *config.Loaded) {
	for _, doubt := range loaded.Doubts() {
		fmt.Fprintf(notes, "headgate: warning: %v It is ignored.\n", doubt)
	}
}

// ProducerLogger returns the logger of a producer. What a command writes says how it went, so it is silent unless a level for
// producers is given.
func (s *Target) ProducerLogger(to io.Writer) zerolog.Logger {
	if !s.Loaded.Given(config.PathProducerLevel) {
		return zerolog.Nop()
	}
	return logs.New(to, s.Loaded.Logs()).Logger(logs.Producer)
}

// Traces opens what sends traces, where the configuration says so. What is left of them has to be sent with Close.
func (s *Target) Traces(logger zerolog.Logger) (*spans.Exporter, error) {
	config, err := s.Loaded.Traces()
	if err != nil {
		return nil, err
	}
	return spans.Open(config, logger)
}

// With opens the store for the time of a call.
func (s *Target) With(ctx context.Context, notes io.Writer, do func(context.Context, store.Deployment) error) (err error) {
	opened, err := s.Open(ctx, notes)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, opened.Close()) }()
	st, err := redisstore.Open(ctx, opened.Client(), s.Keys())
	if err != nil {
		return err
	}
	return do(ctx, st)
}

// Keys returns what the store keeps under which names, of a target that is loaded.
func (s *Target) Keys() redisstore.Config { return redisstore.Config(s.Loaded.Config.Redis.Store) }
