package migrate

import (
	"context"
	"fmt"
	"strings"

	"github.com/headgate/headgate/internal/redisconn"
)

const (
	// adaptiveField is the field of the state that says how many limits move by themselves.
	adaptiveField = "na"
	// adaptiveFields are those of a row before the last, which says who has frozen the limit or set it for a time (fragments/share.lua).
	adaptiveFields = 15
)

// copyAdaptive has limits that move by themselves stand in new partitions where they do in the first one, before the policy comes there: with the
// policy alone they would begin at its own limits. The first partition decides and the others follow, so it alone knows who has frozen one, or
// set it for a time.
func (m *Migration) copyAdaptive(ctx context.Context) error {
	rows, err := m.from[0].conn.WholeHash(ctx, m.from[0].conn.Partition.Base()+"adaptive", "")
	if err != nil || len(rows) == 0 {
		return err
	}
	for i, part := range m.to {
		if m.inPlace && i < m.before {
			continue
		}
		var fields []any
		for gate, row := range rows {
			if i > 0 {
				words := strings.SplitN(row, "|", adaptiveFields+1)
				words[len(words)-1] = ""
				row = strings.Join(words, "|")
			}
			fields = append(fields, gate, row)
		}
		pipe := redisconn.Client(part.conn).Pipeline()
		pipe.HSet(ctx, part.conn.Partition.Base()+"adaptive", fields...)
		pipe.HSet(ctx, part.conn.Partition.State(), adaptiveField, len(rows))
		if _, err := pipe.Exec(ctx); err != nil {
			return fmt.Errorf("copy limits that move: %w", redisconn.Unread(err))
		}
	}
	return nil
}
