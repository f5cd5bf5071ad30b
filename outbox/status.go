package outbox

import (
	"context"
	"database/sql"
	"fmt"
	"time"

	"github.com/headgate/headgate/internal/sqldb"
)

// Status is what an outbox holds.
type Status struct {
	// Rows wait to be moved, the oldest of them for Oldest; Held of the tenants wait because of a refusal.
	Rows   int64
	Oldest time.Duration
	Held   int64
	// Dead is how many rows will not be moved.
	Dead int64
}

// StatusOf returns what the outbox of a PostgreSQL holds; see Dialect.Status.
func StatusOf(ctx context.Context, db *sql.DB) (Status, error) { return PostgreSQL.Status(ctx, db) }

// Status returns what the outbox of a database holds.
func (d Dialect) Status(ctx context.Context, db *sql.DB) (s Status, err error) {
	if err := d.validate(); err != nil {
		return Status{}, err
	}
	var oldest int64
	err = db.QueryRowContext(ctx, grammars[d].text(`SELECT count(*), coalesce({age min(created)}, 0),
		count(DISTINCT CASE WHEN not_before > {now} THEN tenant END), (SELECT count(*) FROM headgate_outbox_dead) FROM headgate_outbox`)).
		Scan(&s.Rows, &oldest, &s.Held, &s.Dead)
	if err != nil {
		return Status{}, fmt.Errorf("look at the outbox: %w", err)
	}
	s.Oldest = max(0, time.Duration(oldest)*time.Microsecond) // A transaction's time is that of its begin, and clocks step.
	return s, nil
}

// DeadRow is a job that could not enter.
type DeadRow struct {
	Seq        int64
	ID, Tenant string
	Reason     string
	Created    time.Time
	Died       time.Time
}

// Dead returns the dead rows of a PostgreSQL; see Dialect.Dead.
func Dead(ctx context.Context, db *sql.DB, after int64, most int) ([]DeadRow, error) {
	return PostgreSQL.Dead(ctx, db, after, most)
}

// Dead returns the dead rows after a number, in their order, at most so many of them. Their times are in UTC, exact to the millisecond.
func (d Dialect) Dead(ctx context.Context, db *sql.DB, after int64, most int) (all []DeadRow, err error) {
	if err := d.validate(); err != nil {
		return nil, err
	}
	rows, err := db.QueryContext(ctx, grammars[d].text(`SELECT seq, id, tenant, reason, {unix created}, {unix died} FROM headgate_outbox_dead
		WHERE seq > ? ORDER BY seq LIMIT ?`), after, most)
	if err != nil {
		return nil, fmt.Errorf("list dead rows of the outbox: %w", err)
	}
	defer rows.Close()
	for rows.Next() {
		var one DeadRow
		var created, died int64
		if err := rows.Scan(&one.Seq, &one.ID, &one.Tenant, &one.Reason, &created, &died); err != nil {
			return nil, fmt.Errorf("list dead rows of the outbox: %w", err)
		}
		one.Created, one.Died = time.UnixMilli(created).UTC(), time.UnixMilli(died).UTC()
		all = append(all, one)
	}
	return all, rows.Err()
}

// Redrive puts dead rows of a PostgreSQL back; see Dialect.Redrive.
func Redrive(ctx context.Context, db *sql.DB, reason string) (n int64, err error) {
	return PostgreSQL.Redrive(ctx, db, reason)
}

// Redrive puts dead rows back into the outbox, behind all others: those of a reason, or with an empty one all. Of the reason "doubt" the
// caller has made sure that they have not run, or does not mind that they run twice.
func (d Dialect) Redrive(ctx context.Context, db *sql.DB, reason string) (n int64, err error) {
	if err := d.validate(); err != nil {
		return 0, err
	}
	err = sqldb.With(ctx, db, func(conn *sql.Conn) error {
		n, err = grammars[d].redriveOn(ctx, conn, reason)
		return err
	})
	if err != nil {
		return 0, fmt.Errorf("redrive dead rows of the outbox: %w", err)
	}
	return n, nil
}

func (g *grammar) redriveOn(ctx context.Context, conn *sql.Conn, reason string) (n int64, err error) {
	if g.isolate != "" {
		if _, err := conn.ExecContext(ctx, g.isolate); err != nil {
			return 0, err
		}
	}
	err = sqldb.Transact(ctx, conn, func() error {
		for i, statement := range g.redrive {
			result, err := conn.ExecContext(ctx, g.text(statement), reason, reason)
			if err == nil && i == 0 {
				n, err = result.RowsAffected()
			}
			if err != nil {
				return err
			}
		}
		return nil
	})
	return n, err
}
