package limits

import "github.com/headgate/headgate/internal/redisconn"

// Limits is the limits of a partition.
type Limits struct{ conn *redisconn.Conn }

// New returns the Limits of the partition behind a Conn.
func New(conn *redisconn.Conn) *Limits { return &Limits{conn: conn} }
