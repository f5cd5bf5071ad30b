package looking

import "github.com/headgate/headgate/internal/redisconn"

// Looking is what is seen of a partition.
type Looking struct{ conn *redisconn.Conn }

// New returns the Looking of the partition behind a Conn.
func New(conn *redisconn.Conn) *Looking { return &Looking{conn: conn} }
