package command

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/spf13/pflag"

	"github.com/headgate/headgate/internal/embedded"
	"github.com/headgate/headgate/lua"
)

// site is the deployment that a command works on: one that others use too.
type site struct{ redis, prefix string }

func (s *site) add(flags *pflag.FlagSet) {
	flags.StringVar(&s.redis, "redis", "", "`URL` of the Redis, redis://host:6379 or host:port (required)")
	flags.StringVar(&s.prefix, "prefix", "", "`PREFIX` of the deployment's keys (default \"hg\")")
}

// validate reports a site that is nowhere.
func (s *site) validate() error {
	if s.redis == "" {
		return usage(errors.New("say which Redis with --redis, redis://host:6379 for one: a private one holds nothing of anybody else's"))
	}
	return nil
}

// with opens the store for the time of a call.
func (s *site) with(ctx context.Context, notes io.Writer, do func(context.Context, *lua.Store) error) (err error) {
	if err := s.validate(); err != nil {
		return err
	}
	opened, err := embedded.Open(ctx, embedded.Config{Addr: s.redis, Log: notes})
	if err != nil {
		return fmt.Errorf("open the store: %w", err)
	}
	defer func() { err = errors.Join(err, opened.Close()) }()
	store, err := lua.Open(ctx, opened.Client(), lua.Config{Prefix: s.prefix})
	if err != nil {
		return err
	}
	return do(ctx, store)
}
