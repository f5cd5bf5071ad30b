package outbox

import (
	"context"
	"crypto/rand"
	"database/sql"
	"errors"
	"fmt"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/internal/sqldb"
	"github.com/headgate/headgate/store"
)

// Batcher takes the jobs, and answers on each of them in their order, also where it fails; *producer.Producer is one.
type Batcher interface {
	EnqueueBatch(ctx context.Context, jobs []admission.Job) ([]admission.EnqueueResult, error)
}

// Config is what a Relay is told. Only Window is needed.
type Config struct {
	// Dialect is the SQL of the database; zero means PostgreSQL.
	Dialect Dialect
	// Window returns the dedup window of the policy in force. It is asked before a row is sent for the second time.
	Window func(ctx context.Context) (time.Duration, error)
	// Timeout is the longest that a call of the Batcher takes to reach Redis, 1 ms to 1 min; zero means 2 s, as a producer's.
	Timeout time.Duration
	// Poll is the time between two looks at an outbox that was empty, 10 ms to 1 min; zero means 250 ms.
	Poll time.Duration
	// Batch is how many rows are claimed at a time, 1 to 10,000; zero means 512.
	Batch int
	// OnError hears of errors of the database and of Redis; the relay goes on. It must not block. Nil hears nothing.
	OnError func(err error)
}

func (c Config) withDefaults() Config {
	if c.Timeout == 0 {
		c.Timeout = 2 * time.Second
	}
	if c.Poll == 0 {
		c.Poll = 250 * time.Millisecond
	}
	if c.Batch == 0 {
		c.Batch = 512
	}
	if c.OnError == nil {
		c.OnError = func(error) {}
	}
	return c
}

func (c Config) validate() error {
	var bad []error
	field := func(ok bool, name, value, allowed string) {
		if !ok {
			bad = append(bad, &admission.FieldError{Field: name, Value: value, Allowed: allowed})
		}
	}
	if err := c.Dialect.validate(); err != nil {
		bad = append(bad, err)
	}
	field(c.Window != nil, "Window", "nil", "a function")
	field(c.Timeout >= time.Millisecond && c.Timeout <= time.Minute, "Timeout", c.Timeout.String(), "1ms to 1m")
	field(c.Poll >= 10*time.Millisecond && c.Poll <= time.Minute, "Poll", c.Poll.String(), "10ms to 1m")
	field(c.Batch >= 1 && c.Batch <= 10_000, "Batch", strconv.Itoa(c.Batch), "1 to 10000")
	return errors.Join(bad...)
}

// Stats are what a Relay has done since it was made.
type Stats struct {
	// Admitted and Duplicates are rows that are in; Refused are refusals that pass; Dead are rows that became dead.
	Admitted, Duplicates, Refused, Dead uint64
	// Errors are how often the database or Redis failed; OnError has heard of them.
	Errors uint64
	// Working says that this relay is the one that works.
	Working bool
}

// Relay moves the rows of an outbox. Its methods may be called from several goroutines; Run once at a time.
type Relay struct {
	db     *sql.DB
	to     Batcher
	config Config
	sql    *grammar
	lock   sqldb.Lock
	// The statements as the database has them.
	claimRows, refuseRow, buryRow string
	// who and lease are for a lock that is a relay's for a time.
	who   string
	lease time.Duration
	// patience is how long a statement may take, and how long a connection and its lock.
	patience time.Duration

	admitted, duplicates, refused, dead, errors atomic.Uint64
	working                                     atomic.Bool
}

// NewRelay returns a relay from a database, whose tables Migrate has made. While it works it holds one connection of db. The error names each bad
// field.
func NewRelay(db *sql.DB, to Batcher, config Config) (*Relay, error) {
	config = config.withDefaults()
	if err := config.validate(); err != nil {
		return nil, err
	}
	g := grammars[config.Dialect]
	return &Relay{
		db: db, to: to, config: config, sql: g, lock: sqldb.LockOf(g.dialect),
		claimRows: g.text(claimRows) + strconv.Itoa(config.Batch), refuseRow: g.text(refuseRow), buryRow: g.text(buryRow),
		// A batch takes two time-outs and its statements; between two of them the relay sleeps for the time of a poll.
		who: rand.Text(), lease: 5*config.Timeout + 2*config.Poll,
		patience: sqldb.StatementTimeout,
	}, nil
}

// Stats returns what the relay has done.
func (r *Relay) Stats() Stats {
	return Stats{
		Admitted: r.admitted.Load(), Duplicates: r.duplicates.Load(), Refused: r.refused.Load(), Dead: r.dead.Load(),
		Errors: r.errors.Load(), Working: r.working.Load(),
	}
}

// Lag returns for how long the row at the head of the outbox has waited, zero where there is none. It reads one row, by a connection of its own.
func (r *Relay) Lag(ctx context.Context) (time.Duration, error) {
	var age int64
	err := r.db.QueryRowContext(ctx, r.sql.text(`SELECT {age created} FROM headgate_outbox ORDER BY seq LIMIT 1`)).Scan(&age)
	if err != nil && !errors.Is(err, sql.ErrNoRows) {
		return 0, fmt.Errorf("look at the head of the outbox: %w", err)
	}
	return max(0, time.Duration(age)*time.Microsecond), nil
}

// Backoff while the database or Redis is away.
const (
	leastBackoff = 100 * time.Millisecond
	mostBackoff  = 5 * time.Second
)

// Run moves rows until ctx ends, and returns nil then. What the database or Redis fails with goes to OnError, and Run comes again, unless the deployment was
// migrated since it was opened: that ends Run.
func (r *Relay) Run(ctx context.Context) error {
	backoff := leastBackoff
	for ctx.Err() == nil {
		err := r.session(ctx, func(conn *sql.Conn) error {
			for ctx.Err() == nil {
				n, err := r.move(ctx, conn)
				if err != nil {
					return err
				}
				backoff = leastBackoff
				if n == 0 {
					pause(ctx, r.config.Poll)
				}
			}
			return nil
		})
		switch {
		case ctx.Err() != nil:
		case store.IsOutdated(err):
			return fmt.Errorf("move the outbox: %w", err)
		case errors.Is(err, ErrStandby):
			pause(ctx, r.config.Poll)
		default:
			r.errors.Add(1)
			r.config.OnError(err)
			pause(ctx, backoff)
			backoff = min(2*backoff, mostBackoff)
		}
	}
	return nil
}

// ErrStandby means that another relay works on this database.
var ErrStandby = errors.New("another relay moves the rows of this outbox")

// Once moves what may be moved now and returns: rows that a refusal holds back stay. The error matches ErrStandby where another relay works.
func (r *Relay) Once(ctx context.Context) error {
	return r.session(ctx, func(conn *sql.Conn) error {
		for {
			if n, err := r.move(ctx, conn); n == 0 || err != nil {
				return err
			}
		}
	})
}

// keep fails where the lock is another's by now.
func (r *Relay) keep(ctx context.Context, in sqldb.Statements) error {
	err := r.lock.Keep(ctx, in, &tables, r.who, r.lease)
	if lost, ok := errors.AsType[*sqldb.LostError](err); ok {
		return fmt.Errorf("%w: %w", lost, ErrStandby)
	}
	return err
}

// session does something while this relay is the one that works. All statements are of one connection: the lock is its, so whoever has lost
// the lock can claim nothing.
func (r *Relay) session(ctx context.Context, do func(*sql.Conn) error) error {
	taking, taken := context.WithTimeout(ctx, r.patience)
	defer taken()
	conn, err := r.db.Conn(taking)
	if err != nil {
		return fmt.Errorf("connect to the outbox: %w", err)
	}
	defer conn.Close()
	got, err := r.lock.Take(taking, conn, &tables, r.who, r.lease)
	if err != nil {
		return fmt.Errorf("lock the outbox: %w", err)
	}
	if !got {
		return ErrStandby
	}
	r.working.Store(true)
	defer func() {
		r.working.Store(false)
		free, cancel := sqldb.Detached(ctx)
		defer cancel()
		r.lock.Free(free, conn, &tables, r.who)
	}()
	return do(conn)
}

func pause(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}
