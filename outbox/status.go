package outbox

import (
	"context"
	"database/sql"
	"fmt"
	"time"
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

// StatusOf returns what the outbox of a database holds.
func StatusOf(ctx context.Context, db *sql.DB) (s Status, err error) {
	var oldest float64
	err = db.QueryRowContext(ctx, `SELECT count(*), coalesce(extract(epoch FROM clock_timestamp() - min(created)), 0)::float8,
		count(DISTINCT tenant) FILTER (WHERE not_before > now()), (SELECT count(*) FROM headgate_outbox_dead) FROM headgate_outbox`).
		Scan(&s.Rows, &oldest, &s.Held, &s.Dead)
	if err != nil {
		return Status{}, fmt.Errorf("look at the outbox: %w", err)
	}
	s.Oldest = time.Duration(oldest * float64(time.Second))
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

// Dead returns the dead rows after a number, in their order, at most so many of them.
func Dead(ctx context.Context, db *sql.DB, after int64, most int) (all []DeadRow, err error) {
	rows, err := db.QueryContext(ctx, `SELECT seq, id, tenant, reason, created, died FROM headgate_outbox_dead WHERE seq > $1 ORDER BY seq LIMIT $2`,
		after, most)
	if err != nil {
		return nil, fmt.Errorf("list dead rows of the outbox: %w", err)
	}
	defer rows.Close()
	for rows.Next() {
		var d DeadRow
		if err := rows.Scan(&d.Seq, &d.ID, &d.Tenant, &d.Reason, &d.Created, &d.Died); err != nil {
			return nil, fmt.Errorf("list dead rows of the outbox: %w", err)
		}
		all = append(all, d)
	}
	return all, rows.Err()
}

// Redrive puts dead rows back into the outbox, behind all others: those of a reason, or with an empty one all. Of the reason "doubt" the
// caller has made sure that they have not run, or does not mind that they run twice.
func Redrive(ctx context.Context, db *sql.DB, reason string) (n int64, err error) {
	result, err := db.ExecContext(ctx, `WITH back AS (DELETE FROM headgate_outbox_dead WHERE $1 = '' OR reason = $1 RETURNING seq, id, tenant, job)
		INSERT INTO headgate_outbox (id, tenant, job) SELECT id, tenant, job FROM back ORDER BY seq`, reason)
	if err != nil {
		return 0, fmt.Errorf("redrive dead rows of the outbox: %w", err)
	}
	return result.RowsAffected()
}
