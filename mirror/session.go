package mirror

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/headgate/headgate/internal/sqldb"
	"github.com/headgate/headgate/store"
)

const (
	// portion is how many entries are copied in a transaction.
	portion = 500
	// noteEvery is how often it is noted that there was nothing to copy.
	noteEvery = 10 * time.Second
	// oldEvery is how often days before yesterday are looked at.
	oldEvery = time.Hour
)

type placeKey struct {
	source string
	part   int
}

// place is up to where a source is copied: position is that of the last entry, version or day; ordinal is how many entries its stream had ever had
// up to there.
type place struct {
	there    bool
	position string
	ordinal  int64
	noted    time.Time // when it was written last
}

// session is a mirror that works. Only its goroutine uses it.
type session struct {
	*Mirror

	conn    *sql.Conn
	places  map[placeKey]place
	usageAt time.Time // when usage was looked at last
	oldAt   time.Time
	known   map[int64]map[[2]string]store.Used // what the database has of today and yesterday, by day
}

// begin reads the places, and makes sure that they are this deployment's.
func (s *session) begin(ctx context.Context) error {
	if err := s.transact(ctx, s.belong); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, s.patience)
	defer cancel()
	rows, err := s.conn.QueryContext(ctx, s.dialect.Text(`SELECT source, part, position, ordinal, {age complete} FROM headgate_mirror_place`))
	if err != nil {
		return &databaseError{fmt.Errorf("read the places of the mirror: %w", err)}
	}
	defer rows.Close()
	now := time.Now()
	for rows.Next() {
		key, at, age := placeKey{}, place{there: true}, int64(0)
		if err := rows.Scan(&key.source, &key.part, &at.position, &at.ordinal, &age); err != nil {
			return &databaseError{fmt.Errorf("read the places of the mirror: %w", err)}
		}
		at.noted = now.Add(-max(0, time.Duration(age)*time.Microsecond))
		s.places[key] = at
		s.mu.Lock()
		if at.noted.Before(s.mu.complete[key.source]) {
			s.mu.complete[key.source] = at.noted
		}
		s.mu.Unlock()
	}
	if err := rows.Err(); err != nil {
		return &databaseError{fmt.Errorf("read the places of the mirror: %w", err)}
	}
	return nil
}

// belong notes whose mirror it is. Where the deployment has another number of partitions than when the places were noted, its streams are others,
// and all that they have is copied: what is there already stays one row.
func (s *session) belong(ctx context.Context) error {
	parts := len(s.from.Partitions())
	var prefix string
	var had int
	err := s.conn.QueryRowContext(ctx, `SELECT prefix, partitions FROM headgate_mirror_of`).Scan(&prefix, &had)
	switch {
	case errors.Is(err, sql.ErrNoRows):
	case err != nil:
		return err
	case prefix != s.config.Prefix:
		return &OtherError{Prefix: s.config.Prefix, Has: prefix}
	case had == parts:
		return nil
	default:
		if _, err := s.conn.ExecContext(ctx, `DELETE FROM headgate_mirror_place WHERE source IN ('audit', 'transitions')`); err != nil {
			return err
		}
	}
	_, err = s.conn.ExecContext(ctx, insert(s.dialect, "headgate_mirror_of", true, 1, "one", "prefix", "partitions"), 1, s.config.Prefix, parts)
	return err
}

// transact writes, while the lock is this mirror's.
func (s *session) transact(ctx context.Context, do func(ctx context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, s.patience)
	defer cancel()
	err := sqldb.Transact(ctx, s.conn, func() error {
		if err := s.lock.Keep(ctx, s.conn, &tables, s.who, s.lease); err != nil {
			return err
		}
		return do(ctx)
	})
	if lost, ok := errors.AsType[*sqldb.LostError](err); ok {
		return fmt.Errorf("%w: %w", lost, ErrStandby)
	}
	if err != nil {
		return &databaseError{fmt.Errorf("write to the database: %w", err)}
	}
	return nil
}

// look refuses a deployment that is being migrated, or was: what is not where it was is not to be noted as gone.
func (s *session) look(ctx context.Context) error {
	if err := s.from.CheckLayout(ctx); err != nil {
		return &redisError{err}
	}
	return nil
}

// round copies some of each source; full says that there is more.
func (s *session) round(ctx context.Context) (full bool, err error) {
	if err := s.look(ctx); err != nil {
		return false, err
	}
	for _, source := range Sources {
		began := time.Now()
		more, err := s.copy(ctx, source)
		if err != nil {
			return false, err
		}
		full = full || more
		if !more {
			s.mu.Lock()
			s.mu.complete[source] = began
			s.mu.Unlock()
		}
	}
	return full, nil
}

func (s *session) copy(ctx context.Context, source string) (more bool, err error) {
	switch source {
	case Policies:
		return s.copyPolicies(ctx)
	case Anomalies:
		return s.copyAnomalies(ctx)
	case Usage:
		return false, s.copyUsage(ctx)
	}
	for i, part := range s.from.Partitions() {
		var again bool
		if source == Audit {
			again, err = s.copyAudit(ctx, i, part)
		} else {
			again, err = s.copyTransitions(ctx, i, part)
		}
		if err != nil {
			return false, err
		}
		more = more || again
	}
	return more, nil
}

// advance notes in a transaction that a source is copied up to a place, and what had gone before that.
func (s *session) advance(ctx context.Context, key placeKey, at place, gap *Gap) error {
	if gap != nil {
		_, err := s.conn.ExecContext(ctx, insert(s.dialect, "headgate_mirror_gaps", true, 3, "source", "part", "after_position", "lost", "reason", "noted!"),
			gap.Source, gap.Part, gap.After, gap.Lost, gap.Reason)
		if err != nil {
			return err
		}
	}
	_, err := s.conn.ExecContext(ctx, insert(s.dialect, "headgate_mirror_place", true, 2, "source", "part", "position", "ordinal", "complete!"),
		key.source, key.part, at.position, at.ordinal)
	return err
}

// commit copies rows of a source, with its place and what had gone.
func (s *session) commit(ctx context.Context, key placeKey, at place, gap *Gap, rows int, write func(ctx context.Context) error) error {
	was := s.places[key]
	if rows == 0 && gap == nil && was.there && was.position == at.position && was.ordinal == at.ordinal && time.Since(was.noted) < noteEvery {
		return nil
	}
	err := s.transact(ctx, func(ctx context.Context) error {
		if rows > 0 {
			if err := write(ctx); err != nil {
				return err
			}
		}
		return s.advance(ctx, key, at, gap)
	})
	if err != nil {
		return err
	}
	at.there, at.noted = true, time.Now()
	s.places[key] = at
	s.note(key.source, func(of *SourceStats) {
		of.Rows += uint64(rows) //nolint:gosec // It is a length.
		if gap != nil && gap.Reason != GapBefore {
			of.Gaps, of.Lost = of.Gaps+1, of.Lost+uint64(gap.Lost) //nolint:gosec // It is above zero.
		}
	})
	if gap != nil {
		s.config.OnGap(*gap)
	}
	return nil
}

// gapOf says what had gone of a stream behind its place: so many have left it, and so many had been up to there.
func gapOf(key placeKey, was place, gone int64) *Gap {
	if gone <= was.ordinal {
		return nil
	}
	gap := &Gap{Source: key.source, Part: key.part, After: was.position, Lost: gone - was.ordinal, Reason: GapTrimmed}
	if !was.there {
		gap.Reason = GapBefore
	}
	return gap
}

// when is a time as the database takes it, nil for none.
func (s *session) when(at time.Time) any {
	switch {
	case at.IsZero():
		return nil
	case s.dialect == sqldb.PostgreSQL:
		return at.UTC()
	}
	return at.UTC().Format("2006-01-02 15:04:05.000000")
}

// text is one that each database takes: PostgreSQL refuses a NUL and what is no UTF-8.
func text(given string) string {
	return strings.ReplaceAll(strings.ToValidUTF8(given, "\uFFFD"), "\x00", "\uFFFD")
}
