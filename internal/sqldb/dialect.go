package sqldb

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/headgate/headgate/admission"
)

// Dialect is the SQL of a database.
type Dialect int

// The databases. outbox.Dialect says from which version on.
const (
	PostgreSQL Dialect = iota
	MySQL
	SQLite
)

// String returns "postgresql", "mysql" or "sqlite".
func (d Dialect) String() string {
	if d < PostgreSQL || d > SQLite {
		return strconv.Itoa(int(d))
	}
	return grammars[d].name
}

// Validate refuses a dialect that there is not.
func (d Dialect) Validate() error {
	if d < PostgreSQL || d > SQLite {
		return &admission.FieldError{Field: "Dialect", Value: d.String(), Allowed: "PostgreSQL, MySQL or SQLite"}
	}
	return nil
}

// Of returns the dialect that the scheme of an address names: postgres:// or postgresql://, mysql:// or mariadb://, sqlite:. An address without a
// scheme, host=… dbname=…, is PostgreSQL's. The error does not repeat the address, which may hold a password.
func Of(address string) (Dialect, error) {
	scheme, _, found := strings.Cut(address, ":")
	switch {
	case scheme == "postgres", scheme == "postgresql", !found && strings.Contains(address, "="), found && strings.Contains(scheme, "="):
		return PostgreSQL, nil
	case found && (scheme == "mysql" || scheme == "mariadb"):
		return MySQL, nil
	case found && scheme == "sqlite":
		return SQLite, nil
	}
	return 0, &admission.FieldError{Field: "address", Value: "(not shown)", Allowed: "postgres://…, mysql://…, mariadb://… or sqlite:FILE"}
}

// grammar is how a database says what statements need.
type grammar struct {
	name     string
	numbered bool // placeholders are $1, $2, …
	// now is the time of the statement; later that so many microseconds after, a placeholder.
	now, later string
	// age is the microseconds since a column's time, unix its milliseconds since 1970; as formats of that column.
	age, unix string
	// alone calls do while nobody else migrates those tables.
	alone func(ctx context.Context, db *sql.DB, of *Tables, do func(Statements) error) error
	Lock
}

// Statements is a *sql.Tx, *sql.Conn or *sql.DB.
type Statements interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
}

var grammars = [...]*grammar{PostgreSQL: &postgresql, MySQL: &mysql, SQLite: &sqlite}

// Text writes a statement as the database has it. In it placeholders are question marks, and {now}, {later}, {age X} and {unix X} of a column X
// are written out.
func (d Dialect) Text(statement string) string {
	g := grammars[d]
	var out strings.Builder
	for {
		before, rest, found := strings.Cut(statement, "{")
		out.WriteString(before)
		if !found {
			break
		}
		var word string
		word, statement, _ = strings.Cut(rest, "}")
		word, column, _ := strings.Cut(word, " ")
		switch word {
		case "now":
			out.WriteString(g.now)
		case "later":
			out.WriteString(g.later)
		case "age":
			out.WriteString(strings.ReplaceAll(g.age, "%", column))
		case "unix":
			out.WriteString(strings.ReplaceAll(g.unix, "%", column))
		}
	}
	if !g.numbered {
		return out.String()
	}
	parts := strings.Split(out.String(), "?")
	out.Reset()
	out.WriteString(parts[0])
	for i, part := range parts[1:] {
		fmt.Fprintf(&out, "$%d%s", i+1, part)
	}
	return out.String()
}

// Now is the time of the statement, as the database has it.
func (d Dialect) Now() string { return grammars[d].now }

// Transact does something in a transaction of a connection. Its begin and its end are statements like others: the driver of MySQL has no ctx in a
// commit of database/sql, and waits for ever for a server that does not answer.
func Transact(ctx context.Context, conn *sql.Conn, do func() error) (err error) {
	if _, err = conn.ExecContext(ctx, "BEGIN"); err != nil {
		return err
	}
	committed := false
	defer func() {
		if !committed {
			rollback(ctx, conn)
		}
	}()
	if err = do(); err != nil {
		return err
	}
	_, err = conn.ExecContext(ctx, "COMMIT")
	committed = err == nil
	return err
}

// rollback ends a transaction, or the connection: nobody else is to get one with a transaction in it.
func rollback(ctx context.Context, conn *sql.Conn) {
	ctx, cancel := Detached(ctx)
	defer cancel()
	if _, err := conn.ExecContext(ctx, "ROLLBACK"); err != nil {
		_ = conn.Raw(func(any) error { return driver.ErrBadConn })
	}
}

// With does something with a connection of its own.
func With(ctx context.Context, db *sql.DB, do func(conn *sql.Conn) error) error {
	conn, err := db.Conn(ctx)
	if err != nil {
		return err
	}
	defer conn.Close()
	return do(conn)
}

// StatementTimeout is how long a statement may take, and how long a connection and its lock.
const StatementTimeout = 30 * time.Second

// Detached is for what has to be done also when ctx has ended.
func Detached(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(ctx), StatementTimeout)
}
