package migrate

import (
	"context"
	"fmt"
	"strings"

	"github.com/headgate/headgate/internal/redisconn"
)

// recordPage is how many fields of records are read at a time.
const recordPage = 256

// eachRecord calls do for the records of tenants that move from a partition: TENANT, what is stored of it, what that says of dispatches, and so on, as the script records
// takes them.
func (m *Migration) eachRecord(ctx context.Context, from int, part *partition, do func(to *partition, fields []any) error) error {
	for cursor := uint64(0); ; {
		found, next, err := redisconn.Client(part.conn).HScan(ctx, part.conn.Partition.Records(), cursor, "", recordPage).Result()
		if err != nil {
			return fmt.Errorf("read records of tenants: %w", redisconn.Unread(err))
		}
		var tenants, stored []string
		for i := 0; i+1 < len(found); i += 2 {
			if tenant := found[i]; m.moves(from, tenant) {
				tenants, stored = append(tenants, tenant), append(stored, found[i+1])
			}
		}
		dispatches, err := part.recordedDispatches(ctx, tenants)
		if err != nil {
			return err
		}
		of := map[*partition][]any{}
		for i, tenant := range tenants {
			of[m.home(tenant)] = append(of[m.home(tenant)], tenant, stored[i], dispatches[i])
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

// recordedDispatches returns what records of tenants say of dispatches, as scripts have it, empty for nothing.
func (p *partition) recordedDispatches(ctx context.Context, tenants []string) ([]string, error) {
	said := make([]string, len(tenants))
	if len(tenants) == 0 {
		return said, nil
	}
	rows, err := redisconn.Client(p.conn).HMGet(ctx, p.conn.Partition.Dispatch(), tenants...).Result()
	if err != nil {
		return nil, fmt.Errorf("read dispatches by records of tenants: %w", redisconn.Unread(err))
	}
	for i := range said {
		said[i], _, _ = strings.Cut(redisconn.TextAt(rows, i), ";") // Behind it is what the policy says, which the other partition has too.
	}
	return said, nil
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
		for i := 0; i+2 < len(fields); i += 3 {
			fields[i+1], fields[i+2] = "", ""
		}
		_, err := part.conn.Run(ctx, "records", fields...)
		return err
	})
}
