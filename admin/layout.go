package admin

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/headgate/headgate/admin/internal/route"
	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/store"
)

// A look whether the deployment was migrated takes a command every layoutEvery: what only reads is not refused by Redis, and lists would be wrong for
// as long as nobody looks.
const (
	layoutEvery   = time.Second
	layoutTimeout = 2 * time.Second
)

// watchLayout looks until ctx ends, or until a migration has ended, with the error of that: nobody but a process that begins anew finds the
// deployment then.
func (s *Server) watchLayout(ctx context.Context) error {
	tick := time.NewTicker(layoutEvery)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil
		}
		err := s.lookAtLayout(ctx)
		switch {
		case store.IsOutdated(err):
			s.migrated.Store(&err)
			s.config.Logger.Error().Err(err).Msg("the deployment was migrated: the server ends")
			return err
		case errors.Is(err, admission.ErrMigrating):
			if s.migrated.Swap(&err) == nil {
				s.config.Logger.Warn().Err(err).Msg("lists are refused meanwhile")
			}
		default: // With Redis away calls say so.
			s.migrated.Store(nil)
		}
	}
}

func (s *Server) lookAtLayout(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, layoutTimeout)
	defer cancel()
	return s.config.Store.CheckLayout(ctx) //nolint:wrapcheck // It says what it is.
}

// elsewhere refuses to show a deployment that is being migrated, or was. What would change it Redis refuses, and a limiter may answer without Redis.
func (s *Server) elsewhere(rt route.Route) error {
	if err := s.migrated.Load(); err != nil && rt.Method == http.MethodGet && rt.Load != route.Kept {
		return *err
	}
	return nil
}
