package database

import (
	"cmp"
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

	"github.com/headgate/headgate/internal/sqldb"
)

// addresses are those that database understands.
const addresses = "postgres://user:password@host/name, mysql://user:password@host/name or sqlite:FILE"

// sqliteDriver is what the driver of SQLite registers as. It is linked by headgate-sqlite alone: it takes half a minute to compile.
const sqliteDriver = "sqlite"

// DB is one that is open, and how to talk to it.
type DB struct {
	*sql.DB

	Dialect sqldb.Dialect
}

// Source says where a command's database is.
type Source struct {
	// Variable names the environment variable with the address.
	Variable string
	// File is one with the address, Address the address itself, without a password; empty where they are not given.
	File, Address string
	// Flag is the name of the option of File, AddressFlag that of Address.
	Flag, AddressFlag string
	// Usage makes an error one of the command line, Field is that of a bad field of it: cli.Usage and cli.FieldError.
	Usage func(err error) error
	Field func(field, value, allowed string) error
}

// With opens the database for the time of a call.
func (s *Source) With(do func(db *DB) error) (err error) {
	db, err := s.open()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	return do(db)
}

// open opens the database that the flags or the environment name. No error repeats the address, which may hold a password.
func (s *Source) open() (*DB, error) {
	address := os.Getenv(s.Variable)
	switch {
	case s.File != "" && s.Address != "":
		return nil, s.Usage(fmt.Errorf("say --%s or --%s, and not both", s.AddressFlag, s.Flag))
	case s.Address != "":
		if address = s.Address; hasPassword(address) {
			return nil, s.Field(s.AddressFlag, "(not shown)", "an address without a password, which others on the machine could read: one that has it comes from --"+
				s.Flag+" or "+s.Variable)
		}
	case s.File != "":
		text, err := os.ReadFile(s.File)
		if err != nil {
			return nil, s.Usage(fmt.Errorf("--%s: %w", s.Flag, err))
		}
		address = strings.TrimSpace(string(text))
	}
	dialect, err := sqldb.Of(address)
	if err != nil {
		return nil, s.noAddress()
	}
	var db *sql.DB
	switch dialect {
	case sqldb.MySQL:
		db, err = s.openMySQL(address)
	case sqldb.SQLite:
		db, err = s.openSQLite(address)
	case sqldb.PostgreSQL:
		var config *pgx.ConnConfig
		if config, err = pgx.ParseConfig(address); err != nil {
			return nil, s.noAddress()
		}
		db = stdlib.OpenDB(*config)
	}
	if err != nil {
		return nil, err
	}
	return &DB{DB: db, Dialect: dialect}, nil
}

// hasPassword says whether an address holds one, or cannot be read so well that this is known.
func hasPassword(address string) bool {
	if strings.Contains(address, "password") {
		return true
	}
	if !strings.Contains(address, "://") {
		return false
	}
	at, err := url.Parse(address)
	if err != nil {
		return true
	}
	_, has := at.User.Password()
	return has
}

func (s *Source) noAddress() error {
	return s.Field(cmp.Or(s.AddressFlag, s.Flag), "(not shown)", "the address of a database, "+addresses+", there or in "+s.Variable)
}

// openMySQL takes the parameters of the driver, and socket for the path of a server's on this machine.
func (s *Source) openMySQL(address string) (*sql.DB, error) {
	at, err := url.Parse(address)
	if err != nil || at.Host == "" || strings.Trim(at.Path, "/") == "" {
		return nil, s.noAddress()
	}
	given, err := url.ParseQuery(at.RawQuery)
	if err != nil {
		return nil, s.noAddress()
	}
	socket := given.Get("socket")
	// The driver unescapes some parameters and takes others as they are, so they go on as they were written. It looks for the last slash.
	params := slices.DeleteFunc(strings.Split(at.RawQuery, "&"), func(one string) bool { return one == "" || strings.HasPrefix(one, "socket=") })
	config, err := mysql.ParseDSN("/?" + strings.ReplaceAll(strings.Join(params, "&"), "/", "%2F"))
	if err != nil {
		return nil, s.noAddress()
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
		return nil, s.noAddress()
	}
	return sql.OpenDB(connector), nil
}

// openSQLite waits for whoever writes, for ten seconds. How the file keeps its journal is the application's to say.
func (s *Source) openSQLite(address string) (*sql.DB, error) {
	if !slices.Contains(sql.Drivers(), sqliteDriver) {
		return nil, s.Usage(errors.New("this program has no SQLite: let your own run what the package has, or build headgate-sqlite with " +
			"`go build -C cmd/headgate/sqlite -o ../../../bin/headgate-sqlite .` in a checkout of Headgate"))
	}
	file, options, _ := strings.Cut(strings.TrimPrefix(strings.TrimPrefix(address, "sqlite:"), "//"), "?")
	if file == "" {
		return nil, s.noAddress()
	}
	if options != "" {
		options += "&"
	}
	return sql.Open(sqliteDriver, "file:"+file+"?"+options+"_pragma=busy_timeout(10000)")
}
