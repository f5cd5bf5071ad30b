package migrate

import (
	"context"
	"fmt"

	"github.com/headgate/headgate/internal/redisconn"
)

// recordPage is how many fields of records are read at a time.
const recordPage = 256

// eachRecord calls do for the records of tenants that move from a partition: TENANT, what is stored of it, and so on.
func (m *Migration) eachRecord(ctx context.Context, from int, part *partition, do func(to *partition, fields []any) error) error {
	for cursor := uint64(0); ; {
		found, next, err := redisconn.Client(part.conn).HScan(ctx, part.conn.Partition.Records(), cursor, "", recordPage).Result()
		if err != nil {
			return fmt.Errorf("read records of tenants: %w", redisconn.Unread(err))
		}
		of := map[*partition][]any{}
		for i := 0; i+1 < len(found); i += 2 {
			if tenant := found[i]; m.moves(from, tenant) {
				of[m.home(tenant)] = append(of[m.home(tenant)], tenant, found[i+1])
			}
		}
		for to, fields := range of {
			if err := do(to, fields); err != nil {
				return err
			}
		}
		if cursor = next; cursor == 0 {
			return nil
		}
	}
}

// copyRecords takes over the records of tenants that move, as they are: nobody edits one meanwhile.
func (m *Migration) copyRecords(ctx context.Context, from int, part *partition) error {
	return m.eachRecord(ctx, from, part, func(to *partition, fields []any) error {
		_, err := to.conn.Run(ctx, "records", fields...)
		return err
	})
}

// removeRecords takes the records of tenants that have moved out of a partition that stays in use.
func (m *Migration) removeRecords(ctx context.Context, from int) error {
	part := m.from[from]
	return m.eachRecord(ctx, from, part, func(_ *partition, fields []any) error {
		for i := 1; i < len(fields); i += 2 {
			fields[i] = ""
		}
		_, err := part.conn.Run(ctx, "records", fields...)
		return err
	})
}
