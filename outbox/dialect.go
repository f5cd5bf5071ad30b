package outbox

import (
	"context"
	"database/sql"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/headgate/headgate/admission"
)

// Dialect is the SQL of a database. Whoever opens the database says which it is; nothing is guessed. The functions of this package are the
// methods of PostgreSQL.
type Dialect int

// The databases that an outbox may be in.
const (
	// PostgreSQL is version 12 or later.
	PostgreSQL Dialect = iota
	// MySQL is MySQL 8.0.13 or later, and MariaDB 10.6 or later.
	MySQL
	// SQLite is version 3.24 or later. Its connections need a busy time-out of some seconds, because there is one writer at a time.
	SQLite
)

// String returns "postgresql", "mysql" or "sqlite".
func (d Dialect) String() string {
	if d < PostgreSQL || d > SQLite {
		return strconv.Itoa(int(d))
	}
	return grammars[d].name
}

func (d Dialect) validate() error {
	if d < PostgreSQL || d > SQLite {
		return &admission.FieldError{Field: "Dialect", Value: d.String(), Allowed: "PostgreSQL, MySQL or SQLite"}
	}
	return nil
}

// DialectOf returns the dialect that the scheme of an address names: postgres:// or postgresql://, mysql:// or mariadb://, sqlite:. An address
// without a scheme, host=… dbname=…, is PostgreSQL's. The error does not repeat the address, which may hold a password.
func DialectOf(address string) (Dialect, error) {
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

// grammar is how a database says what the statements of this package need. In all of them placeholders are question marks; text writes them
// as the database has them.
type grammar struct {
	name     string
	numbered bool // placeholders are $1, $2, …
	// now is the time of the statement; later that so many microseconds after, a placeholder.
	now, later string
	// age is the microseconds since a column's time, unix its milliseconds since 1970; as formats of that column.
	age, unix string
	// table is that of the rows, where one is given by its number; sent is an UPDATE of when rows were sent, and drop their DELETE, each as a
	// format of what sent becomes and of a list of numbers. None may look at another row: one that is not committed is locked, and whoever
	// looks at it waits for its transaction.
	table, sent, drop string
	// redrive are the statements that put dead rows back, each with the reason twice; the first counts them.
	redrive   []string
	isolation sql.IsolationLevel

	// migrations are what each version adds to that before it. One that was released is never changed.
	migrations [][]string
	// alone calls do while nobody else migrates.
	alone func(ctx context.Context, db *sql.DB, do func(statements) error) error
	relayLock
}

// relayLock lets one relay of several work.
type relayLock interface {
	// take reports whether it got the lock, for its connection or for a time.
	take(ctx context.Context, conn *sql.Conn, who string, lease time.Duration) (bool, error)
	// keep fails where the lock is another's by now. It is asked before rows are claimed, and first in the transaction that settles them.
	keep(ctx context.Context, in statements, who string, lease time.Duration) error
	free(ctx context.Context, conn *sql.Conn, who string)
}

// statements is a *sql.Tx, *sql.Conn or *sql.DB.
type statements interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
}

var grammars = [...]*grammar{PostgreSQL: &postgresql, MySQL: &mysql, SQLite: &sqlite}

// text writes a statement as the database has it: {now}, {later}, {table}, {age X} and {unix X} of a column X.
func (g *grammar) text(statement string) string {
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
		case "table":
			out.WriteString(g.table)
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

// list writes numbers, which need no placeholder.
func list(numbers []int64) string {
	text := make([]byte, 0, 10*len(numbers))
	for i, n := range numbers {
		if i > 0 {
			text = append(text, ',')
		}
		text = strconv.AppendInt(text, n, 10)
	}
	return string(text)
}

// The formats of most databases.
const (
	plainSent = `UPDATE headgate_outbox SET sent = %s WHERE seq IN (%s)`
	plainDrop = `DELETE FROM headgate_outbox WHERE seq IN (%s)`
)
