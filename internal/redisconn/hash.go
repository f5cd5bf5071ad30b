package redisconn

import (
	"context"
	"fmt"
)

// hashPage is how many fields of a hash that is read as a whole are read at a time.
const hashPage = 500

// WholeHash reads a hash in pages, so that no command is long. A field that comes or goes meanwhile may be missing.
func (c *Conn) WholeHash(ctx context.Context, key, pattern string) (map[string]string, error) {
	all := map[string]string{}
	for cursor := uint64(0); ; {
		pairs, next, err := Client(c).HScan(ctx, key, cursor, pattern, hashPage).Result()
		if err != nil {
			return nil, fmt.Errorf("read %s: %w", key, Unread(err))
		}
		for i := 0; i+1 < len(pairs); i += 2 {
			all[pairs[i]] = pairs[i+1]
		}
		if cursor = next; cursor == 0 {
			return all, nil
		}
	}
}
