package redisstore

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/redisconn"
)

// TestAPartitionThatIsTwoVersionsBehindKeepsItsBuckets: the process that slowed limits has died before another partition heard of it, and the edit that
// this one hears of next says that it changes no limit.
func TestAPartitionThatIsTwoVersionsBehindKeepsItsBuckets(t *testing.T) {
	t.Parallel()
	d, ctx := openParts(t, 2, 0), t.Context()
	first := edit(1, "{}")
	first.LongestFill = time.Minute
	check(t, d.PutPolicy(ctx, first))
	conn := d.parts[1].conn
	client := redisconn.Client(conn)
	bucket := conn.Partition.Buckets("acme")
	check(t, client.HSet(ctx, bucket, "tenant", "x").Err())
	check(t, client.PExpire(ctx, bucket, time.Minute).Err())
	slower := edit(2, "{}")
	slower.LongestFill = time.Hour
	copied, err := json.Marshal(slower)
	check(t, err)
	check(t, d.parts[0].StorePolicy(ctx, partOf(&slower, 0, 2), copied))
	last := edit(3, "{}")
	last.LongestFill, last.SameBuckets = time.Hour, true
	check(t, d.PutPolicy(ctx, last))
	if version, _, err := d.parts[1].PolicyEdit(ctx); err != nil || version != 3 {
		t.Fatalf("version %d, %v", version, err)
	}
	if left := client.PTTL(ctx, bucket).Val(); left < 30*time.Minute {
		t.Errorf("a bucket that fills in an hour is forgotten, and so full, in %v", left)
	}
}
