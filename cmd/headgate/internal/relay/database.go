package relay

import (
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"os"
	"slices"
	"strings"

	"github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/headgate/headgate/cmd/headgate/internal/cli"
	"github.com/headgate/headgate/outbox"
)

// addresses are those that database understands.
const addresses = "postgres://user:password@host/name, mysql://user:password@host/name or sqlite:FILE"

// sqliteDriver is what the driver of SQLite registers as. It is linked by headgate-sqlite alone: it takes half a minute to compile.
const sqliteDriver = "sqlite"

// database is one that is open, and how to talk to it.
type database struct {
	*sql.DB

	dialect outbox.Dialect
}

// open opens the database that the flags or the environment name. No error repeats the address, which may hold a password.
func (f *outboxFlags) open() (*database, error) {
	address := os.Getenv(DatabaseVariable)
	if f.file != "" {
		text, err := os.ReadFile(f.file)
		if err != nil {
			return nil, cli.Usage(fmt.Errorf("--database-file: %w", err))
		}
		address = strings.TrimSpace(string(text))
	}
	dialect, err := outbox.DialectOf(address)
	if err != nil {
		return nil, noAddress()
	}
	var db *sql.DB
	switch dialect {
	case outbox.MySQL:
		db, err = openMySQL(address)
	case outbox.SQLite:
		db, err = openSQLite(address)
	case outbox.PostgreSQL:
		var config *pgx.ConnConfig
		if config, err = pgx.ParseConfig(address); err != nil {
			return nil, noAddress()
		}
		db = stdlib.OpenDB(*config)
	}
	if err != nil {
		return nil, err
	}
	return &database{DB: db, dialect: dialect}, nil
}

func noAddress() error {
	return cli.FieldError("database-file", "(not shown)", "the address of a database, "+addresses+", there or in "+DatabaseVariable)
}

// openMySQL takes the parameters of the driver, and socket for the path of a server's on this machine.
func openMySQL(address string) (*sql.DB, error) {
	at, err := url.Parse(address)
	if err != nil || at.Host == "" || strings.Trim(at.Path, "/") == "" {
		return nil, noAddress()
	}
	given, err := url.ParseQuery(at.RawQuery)
	if err != nil {
		return nil, noAddress()
	}
	socket := given.Get("socket")
	given.Del("socket")
	config, err := mysql.ParseDSN("/?" + given.Encode())
	if err != nil {
		return nil, noAddress()
	}
	config.User = at.User.Username()
	config.Passwd, _ = at.User.Password()
	config.DBName = strings.Trim(at.Path, "/")
	config.Net, config.Addr = "tcp", at.Host
	if at.Port() == "" {
		config.Addr += ":3306"
	}
	if socket != "" {
		config.Net, config.Addr = "unix", socket
	}
	config.Logger = &mysql.NopLogger{} // What it tells is in the errors.
	connector, err := mysql.NewConnector(config)
	if err != nil {
		return nil, noAddress()
	}
	return sql.OpenDB(connector), nil
}

// openSQLite waits for whoever writes, for ten seconds. How the file keeps its journal is the application's to say.
func openSQLite(address string) (*sql.DB, error) {
	if !slices.Contains(sql.Drivers(), sqliteDriver) {
		return nil, cli.Usage(errors.New("this program has no SQLite: let your own run outbox.NewRelay, or build headgate-sqlite with " +
			"`go build -C cmd/headgate/sqlite -o ../../../bin/headgate-sqlite .` in a checkout of Headgate"))
	}
	file, options, _ := strings.Cut(strings.TrimPrefix(strings.TrimPrefix(address, "sqlite:"), "//"), "?")
	if file == "" {
		return nil, noAddress()
	}
	if options != "" {
		options += "&"
	}
	return sql.Open(sqliteDriver, "file:"+file+"?"+options+"_pragma=busy_timeout(10000)")
}
