//go:build unix

package peers

import (
	"context"
	"database/sql"
	"fmt"
	"testing"

	_ "github.com/go-sql-driver/mysql"
	_ "github.com/jackc/pgx/v5/stdlib"

	"github.com/headgate/headgate/internal/dbtest"
)

// BenchmarkCheckInSQL: a token bucket that is a row of a database: one SELECT ... FOR UPDATE and one UPDATE in a transaction of 16 connections, of
// 1,000 tenants and of one, beside exact checks of four levels in Redis.
func BenchmarkCheckInSQL(b *testing.B) {
	for _, tenants := range []int{1000, 1} {
		for _, row := range []struct {
			name string
			open func(*testing.B) func(ctx context.Context, tenant string) error
			n    int
		}{
			{"headgate", newChecks, 80_000},
			{"postgresql", func(b *testing.B) func(context.Context, string) error {
				b.Helper()
				return newRows(b, dbtest.PostgreSQL(b), "$1", "$2")
			}, 8000},
			{"mariadb", func(b *testing.B) func(context.Context, string) error {
				b.Helper()
				return newRows(b, dbtest.MariaDB(b), "?", "?")
			}, 8000},
		} {
			b.Run(fmt.Sprintf("tenants=%d/%s", tenants, row.name), func(b *testing.B) {
				for b.Loop() {
					ask := row.open(b)
					one := ask
					if tenants == 1 {
						one = func(ctx context.Context, _ string) error { return ask(ctx, "tenant-0") }
					}
					checks(b, one, 64, row.n)
				}
			})
		}
	}
}

// newRows returns a check of a row.
func newRows(b *testing.B, server *dbtest.Server, first, second string) func(ctx context.Context, tenant string) error {
	b.Helper()
	db := server.Open(b)
	db.SetMaxOpenConns(16)
	db.SetMaxIdleConns(16)
	_, err := db.ExecContext(b.Context(), "CREATE TABLE buckets (name varchar(128) PRIMARY KEY, tokens bigint NOT NULL)")
	check(b, err)
	for n := range 1000 {
		_, err := db.ExecContext(b.Context(), "INSERT INTO buckets VALUES ("+first+", 100000000)", fmt.Sprintf("tenant-%d", n))
		check(b, err)
	}
	return func(ctx context.Context, tenant string) error {
		tx, err := db.BeginTx(ctx, &sql.TxOptions{Isolation: sql.LevelReadCommitted})
		if err != nil {
			return err
		}
		defer func() { _ = tx.Rollback() }() // Of one that is committed it does nothing.
		var tokens int64
		if err := tx.QueryRowContext(ctx, "SELECT tokens FROM buckets WHERE name = "+first+" FOR UPDATE", tenant).Scan(&tokens); err != nil {
			return err
		}
		if _, err := tx.ExecContext(ctx, "UPDATE buckets SET tokens = "+first+" WHERE name = "+second, tokens-1, tenant); err != nil {
			return err
		}
		return tx.Commit()
	}
}
