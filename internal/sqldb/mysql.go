package sqldb

import (
	"context"
	"database/sql"
	"errors"
	"time"
)

// myLockSeconds is how long a migration waits for another.
const myLockSeconds = "30"

var mysql = grammar{
	name: "mysql",
	now:  `UTC_TIMESTAMP(6)`, later: `UTC_TIMESTAMP(6) + INTERVAL ? MICROSECOND`,
	age: `TIMESTAMPDIFF(MICROSECOND, %, UTC_TIMESTAMP(6))`, unix: `TIMESTAMPDIFF(MICROSECOND, '1970-01-01', %) DIV 1000`,
	alone: func(ctx context.Context, db *sql.DB, of *Tables, do func(Statements) error) (err error) {
		return With(ctx, db, func(conn *sql.Conn) error {
			got, err := myLock{}.get(ctx, conn, of.MyMigrate, myLockSeconds)
			if err != nil {
				return err
			}
			if !got {
				return errors.New("another program has been migrating for " + myLockSeconds + " s")
			}
			err = do(conn)
			free, cancel := Detached(ctx)
			defer cancel()
			_, _ = conn.ExecContext(free, `DO RELEASE_LOCK(`+myName(of.MyMigrate)+`)`) // A broken connection has lost it.
			return err
		})
	},
	Lock: myLock{},
}

// myName is the name of a lock: names of GET_LOCK are the server's, so they have the database in them; they have 64 characters at most.
func myName(begin string) string { return `CONCAT('` + begin + `.', SHA1(DATABASE()))` }

// myLock is the connection's, as PostgreSQL's. It is of one server: where several take writes, all have to use the same.
type myLock struct{}

func (myLock) get(ctx context.Context, conn *sql.Conn, name, seconds string) (bool, error) {
	var got sql.NullInt64 // It is NULL where the server had an error of its own.
	err := conn.QueryRowContext(ctx, `SELECT GET_LOCK(`+myName(name)+`, `+seconds+`)`).Scan(&got)
	if err == nil && !got.Valid {
		err = errors.New("GET_LOCK answers NULL: is there a database in the address?")
	}
	return got.Int64 == 1, err
}

func (l myLock) Take(ctx context.Context, conn *sql.Conn, of *Tables, _ string, _ time.Duration) (bool, error) {
	return l.get(ctx, conn, of.MyWork, "0")
}

func (myLock) Keep(context.Context, Statements, *Tables, string, time.Duration) error { return nil }

func (myLock) Free(ctx context.Context, conn *sql.Conn, of *Tables, _ string) {
	_, _ = conn.ExecContext(ctx, `DO RELEASE_LOCK(`+myName(of.MyWork)+`)`)
}
