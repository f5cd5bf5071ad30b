package outbox

import (
	"strconv"
	"strings"

	"github.com/headgate/headgate/internal/sqldb"
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
func (d Dialect) String() string { return sqldb.Dialect(d).String() }

func (d Dialect) validate() error { return sqldb.Dialect(d).Validate() }

// DialectOf returns the dialect that the scheme of an address names: postgres:// or postgresql://, mysql:// or mariadb://, sqlite:. An address
// without a scheme, host=… dbname=…, is PostgreSQL's. The error does not repeat the address, which may hold a password.
func DialectOf(address string) (Dialect, error) {
	d, err := sqldb.Of(address)
	return Dialect(d), err
}

// tables are those of an outbox.
var tables = sqldb.Tables{
	Of: "outbox", Version: "headgate_outbox_version", PgMigrate: 0x68676f62_00000001, PgWork: 0x68676f62_00000002,
	MyMigrate: "headgate_migrate", MyWork: "headgate_relay", LiteWork: "headgate_outbox_relay",
}

// grammar is how a database says what the statements of this package need, beside what sqldb knows.
type grammar struct {
	dialect sqldb.Dialect
	// table is that of the rows, where one is given by its number; sent is an UPDATE of when rows were sent, and drop their DELETE, each as a
	// format of what sent becomes and of a list of numbers. None may look at another row: one that is not committed is locked, and whoever
	// looks at it waits for its transaction.
	table, sent, drop string
	// redrive are the statements that put dead rows back, each with the reason twice; the first counts them.
	redrive []string
	// isolate is said before them, where there is need.
	isolate string

	// migrations are what each version adds to that before it. One that was released is never changed.
	migrations [][]string
}

var grammars = [...]*grammar{PostgreSQL: &postgresql, MySQL: &mysql, SQLite: &sqlite}

// text writes a statement as the database has it, {table} and what sqldb knows.
func (g *grammar) text(statement string) string {
	return g.dialect.Text(strings.ReplaceAll(statement, "{table}", g.table))
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
