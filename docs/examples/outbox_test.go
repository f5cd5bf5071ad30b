package examples_test

import (
	"context"
	"testing"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/outbox"
)

func TestAnOrderAndItsJobCommitTogether(t *testing.T) {
	t.Parallel()
	db := database(t)
	check(t, outbox.Migrate(t.Context(), db))
	_, err := db.ExecContext(t.Context(), `CREATE TABLE orders (id text)`)
	check(t, err)
	place := func(ctx context.Context, number string) error {
		//snippet:begin commit
		tx, err := db.BeginTx(ctx, nil)
		if err != nil {
			return err
		}
		defer tx.Rollback()
		if _, err := tx.ExecContext(ctx, `INSERT INTO orders (id) VALUES ($1)`, number); err != nil {
			return err
		}
		if _, err := outbox.Enqueue(ctx, tx, admission.NewJob("acme", "mail", "receipt", []byte(number))); err != nil {
			return err
		}
		return tx.Commit() // Both are there, or neither.
		//snippet:end
	}
	check(t, place(t.Context(), "17"))
	waits, err := outbox.StatusOf(t.Context(), db)
	if err != nil || waits.Rows != 1 {
		t.Errorf("%+v, %v", waits, err)
	}
}
