package breakers

import "github.com/headgate/headgate/internal/redisconn"

// Fleet is the breakers of a partition.
type Fleet struct{ conn *redisconn.Conn }

// New returns the Fleet of the partition behind a Conn.
func New(conn *redisconn.Conn) *Fleet { return &Fleet{conn: conn} }
