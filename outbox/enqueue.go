package outbox

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"unicode/utf8"

	"github.com/google/uuid"

	"github.com/headgate/headgate/admission"
)

// Execer is what Enqueue needs of a transaction: *sql.Tx is one, and *sql.Conn and *sql.DB, which commit at once. A transaction of pgx's own
// becomes one by ExecFunc. It has to be of the database that the dialect names.
type Execer interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
}

// ExecFunc makes an Execer of a function, for transactions that are not those of database/sql. Of pgx's:
//
//	outbox.ExecFunc(func(ctx context.Context, query string, args ...any) error {
//		_, err := tx.Exec(ctx, query, args...)
//		return err
//	})
type ExecFunc func(ctx context.Context, query string, args ...any) error

// ExecContext calls the function. The result is nil.
func (f ExecFunc) ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error) {
	return nil, f(ctx, query, args...)
}

const insertRow = `INSERT INTO headgate_outbox (id, tenant, job) VALUES (?, ?, ?)`

// insertRows are its texts, for each dialect.
var insertRows = [...]string{PostgreSQL: postgresql.text(insertRow), MySQL: mysql.text(insertRow), SQLite: sqlite.text(insertRow)}

// Enqueue writes a job into the outbox of a PostgreSQL, within the caller's transaction; see Dialect.Enqueue.
func Enqueue(ctx context.Context, tx Execer, job admission.Job) (id string, err error) {
	return PostgreSQL.Enqueue(ctx, tx, job)
}

// Enqueue writes a job into the outbox, within the caller's transaction: it enters once that has committed, and never if it has not. The id
// is the job's, a UUIDv7 where it has none; the payload has at most admission.DefaultMaxPayload bytes. The error is a *FieldError for each bad
// field, before anything is written, or the database's, after which the transaction is of no use. What only the policy knows, as the classes of
// a queue, the relay finds out. A cost is said: admission.LearnedCost is refused, because a relay learns none.
func (d Dialect) Enqueue(ctx context.Context, tx Execer, job admission.Job) (id string, err error) {
	if err := d.validate(); err != nil {
		return job.ID, err
	}
	if job.ID == "" {
		made, err := uuid.NewV7()
		if err != nil {
			return "", fmt.Errorf("make an id: %w", err)
		}
		job.ID = made.String()
	}
	if err := job.Validate(admission.DefaultMaxPayload); err != nil {
		return job.ID, err
	}
	text, err := json.Marshal(stored{job, rawHeaders(job.Headers)})
	if err != nil {
		return job.ID, fmt.Errorf("write job %s: %w", job.ID, err)
	}
	if _, err := tx.ExecContext(ctx, insertRows[d], job.ID, job.Tenant, string(text)); err != nil {
		return job.ID, fmt.Errorf("put job %s into the outbox: %w", job.ID, err)
	}
	return job.ID, nil
}

// stored is a job as a row has it. RawHeaders are the values of headers that are no UTF-8: JSON would change them.
type stored struct {
	admission.Job

	RawHeaders map[string][]byte `json:",omitempty"`
}

func rawHeaders(headers map[string]string) (raw map[string][]byte) {
	for name, value := range headers {
		if utf8.ValidString(value) {
			continue
		}
		if raw == nil {
			raw = map[string][]byte{}
		}
		raw[name] = []byte(value)
	}
	return raw
}

// readJob reads what Enqueue has written.
func readJob(text string) (admission.Job, error) {
	var s stored
	err := json.Unmarshal([]byte(text), &s)
	for name, value := range s.RawHeaders {
		if s.Headers == nil {
			s.Headers = map[string]string{}
		}
		s.Headers[name] = string(value)
	}
	return s.Job, err
}
