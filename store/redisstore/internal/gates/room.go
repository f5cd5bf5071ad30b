package gates

import "github.com/headgate/headgate/internal/redisconn"

// Bounds is what stops jobs, and the shares of a partition.
type Bounds struct{ conn *redisconn.Conn }

// New returns the Bounds of the partition behind a Conn.
func New(conn *redisconn.Conn) *Bounds { return &Bounds{conn: conn} }
