package jobs

import (
	"context"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/redisconn"
)

// upload is a large payload that goes to Redis beside the script that admits its job: as an argument of the script a megabyte costs Redis
// 1.8 ms, which is Lua taking a copy and giving one back; as a SET it costs 5 µs.
type upload struct {
	name    string
	payload []byte
}

// uploadedFor is how long one stays whose script never comes.
const uploadedFor = time.Minute

// sendUploads adds them to a pipeline. Where one fails, as Redis is full, the script finds nothing and refuses the job.
func (s *Jobs) sendUploads(ctx context.Context, pipe redis.Pipeliner, payloads []upload) {
	for _, p := range payloads {
		pipe.Set(ctx, s.conn.Partition.Upload(p.name), p.payload, uploadedFor)
	}
}

// dropUploads drops what a script has not looked at. Where that fails it goes by itself.
func (s *Jobs) dropUploads(ctx context.Context, payloads []upload) {
	if len(payloads) == 0 {
		return
	}
	keys := make([]string, len(payloads))
	for i, p := range payloads {
		keys[i] = s.conn.Partition.Upload(p.name)
	}
	_ = redisconn.Client(s.conn).Unlink(ctx, keys...).Err()
}
