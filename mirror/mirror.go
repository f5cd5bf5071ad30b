package mirror

import (
	"context"
	"crypto/rand"
	"database/sql"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/headgate/headgate/internal/sqldb"
	"github.com/headgate/headgate/store"
)

// Stats are what a Mirror has done since it was made.
type Stats struct {
	// Sources are by the names of Sources.
	Sources map[string]SourceStats
	// Errors are how often the database or Redis failed.
	Errors uint64
	// Working says that this mirror is the one that works.
	Working bool
}

// SourceStats are those of a source.
type SourceStats struct {
	// Rows are those that were written, Gaps how often something had gone from Redis before it was copied, Lost how much it was.
	Rows, Gaps, Lost uint64
	// Lag is how long ago it was that all was in the database. Standby says that it is another mirror's.
	Lag     time.Duration
	Standby bool
}

// Mirror copies what a deployment keeps into a database. Its methods may be called from several goroutines; Run once at a time.
type Mirror struct {
	db      *sql.DB
	from    store.Deployment
	config  Config
	dialect sqldb.Dialect
	lock    sqldb.Lock
	who     string
	lease   time.Duration
	// patience is how long a statement may take, and how long a connection and its lock.
	patience time.Duration

	mu struct {
		sync.Mutex

		stats Stats
		// complete is when all of a source was in the database.
		complete map[string]time.Time
		standby  bool
	}
}

// New returns a mirror of a deployment in a database, whose tables Migrate has made. While it works it holds one connection of db. The error names
// each bad field.
func New(db *sql.DB, from store.Deployment, config Config) (*Mirror, error) {
	config = config.withDefaults()
	if err := config.validate(); err != nil {
		return nil, err
	}
	m := &Mirror{db: db, from: from, config: config, dialect: sqldb.Dialect(config.Dialect), lock: sqldb.LockOf(sqldb.Dialect(config.Dialect)), who: rand.Text()}
	m.patience = sqldb.StatementTimeout
	m.lease = max(leastLease, 10*config.Poll)
	m.mu.stats.Sources, m.mu.complete = map[string]SourceStats{}, map[string]time.Time{}
	for _, source := range Sources {
		m.mu.stats.Sources[source], m.mu.complete[source] = SourceStats{}, time.Now()
	}
	return m, nil
}

// Stats returns what the mirror has done.
func (m *Mirror) Stats() Stats {
	m.mu.Lock()
	defer m.mu.Unlock()
	s := m.mu.stats
	s.Sources = map[string]SourceStats{}
	for source, one := range m.mu.stats.Sources {
		one.Lag, one.Standby = max(0, time.Since(m.mu.complete[source])), m.mu.standby
		s.Sources[source] = one
	}
	return s
}

// note changes what is counted of a source.
func (m *Mirror) note(source string, change func(s *SourceStats)) {
	m.mu.Lock()
	defer m.mu.Unlock()
	s := m.mu.stats.Sources[source]
	change(&s)
	m.mu.stats.Sources[source] = s
}

// Backoff while the database or Redis is away. A mirror on SQLite has the lock for ten polls, and for leastLease at least, after it has written.
const (
	leastBackoff = 100 * time.Millisecond
	mostBackoff  = 5 * time.Second
	leastLease   = 500 * time.Millisecond
)

// ErrStandby means that another mirror works on this database.
var ErrStandby = errors.New("another mirror writes to this database")

// OtherError means that the tables are the mirror of another deployment.
type OtherError struct{ Prefix, Has string }

// Error names both.
func (e *OtherError) Error() string {
	return fmt.Sprintf("the tables are the mirror of the deployment with the prefix %q, not %q: a database has one", e.Has, e.Prefix)
}

// databaseError and redisError say which of the two is away.
type databaseError struct{ error }

func (e *databaseError) Unwrap() error { return e.error }

type redisError struct{ error }

func (e *redisError) Unwrap() error { return e.error }

// cause is which of the two an error is of.
func cause(err error) string {
	if _, ok := errors.AsType[*redisError](err); ok {
		return "redis"
	}
	return "database"
}

// Run copies until ctx ends, and returns nil then. What the database or Redis fails with goes to OnError, and Run comes again. An *OtherError ends it, and so does a
// migration of the deployment since it was opened.
func (m *Mirror) Run(ctx context.Context) error {
	backoff, away := leastBackoff, ""
	for ctx.Err() == nil {
		err := m.session(ctx, func(s *session) error {
			for ctx.Err() == nil {
				full, err := s.round(ctx)
				if err != nil {
					return err
				}
				if backoff = leastBackoff; away != "" {
					away = ""
					m.config.OnOver()
				}
				if !full {
					pause(ctx, m.config.Poll)
				}
			}
			return nil
		})
		if other, ok := errors.AsType[*OtherError](err); ok {
			return other
		}
		switch {
		case ctx.Err() != nil:
		case store.IsOutdated(err):
			return fmt.Errorf("mirror: %w", err)
		case errors.Is(err, ErrStandby):
			pause(ctx, m.config.Poll)
		default:
			m.failed()
			if now := cause(err); now != away {
				away = now
				m.config.OnError(err)
			}
			pause(ctx, backoff)
			backoff = min(2*backoff, mostBackoff)
		}
	}
	return nil
}

func (m *Mirror) failed() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.mu.stats.Errors++
}

// Once copies what there is and returns. The error matches ErrStandby where another mirror works.
func (m *Mirror) Once(ctx context.Context) error {
	return m.session(ctx, func(s *session) error {
		for {
			if full, err := s.round(ctx); !full || err != nil {
				return err
			}
		}
	})
}

// session does something while this mirror is the one that works. All statements are of one connection: the lock is its, so whoever has lost
// the lock can write nothing.
func (m *Mirror) session(ctx context.Context, do func(*session) error) error {
	taking, taken := context.WithTimeout(ctx, m.patience)
	defer taken()
	conn, err := m.db.Conn(taking)
	if err != nil {
		return &databaseError{fmt.Errorf("connect to the database: %w", err)}
	}
	defer conn.Close()
	got, err := m.lock.Take(taking, conn, &tables, m.who, m.lease)
	if err != nil {
		return &databaseError{fmt.Errorf("lock the mirror: %w", err)}
	}
	m.works(got, !got)
	if !got {
		return ErrStandby
	}
	defer func() {
		m.works(false, false)
		free, cancel := sqldb.Detached(ctx)
		defer cancel()
		m.lock.Free(free, conn, &tables, m.who)
	}()
	s := &session{Mirror: m, conn: conn, places: map[placeKey]place{}}
	if err := s.look(ctx); err != nil {
		return err
	}
	if err := s.begin(ctx); err != nil {
		return err
	}
	return do(s)
}

func (m *Mirror) works(working, standby bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.mu.stats.Working, m.mu.standby = working, standby
}

func pause(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}
