package redisstore

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/redisconn"
	"github.com/headgate/headgate/internal/redistest"
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

// TestAnEditInStepsThatOthersFinishKeepsBuckets: the process that slows limits dies while its edit is under way.
func TestAnEditInStepsThatOthersFinishKeepsBuckets(t *testing.T) {
	t.Parallel()
	y, ctx := newYard(t), t.Context()
	check(t, y.store.PutPolicy(ctx, manyTenants(1, 130, 5)))
	bucket := y.store.conn.Partition.Buckets("acme")
	check(t, y.client.HSet(ctx, bucket, "tenant", "x").Err())
	check(t, y.client.PExpire(ctx, bucket, time.Minute).Err())
	client := redistest.Shared(t).Client(t)
	editor, err := openOnly(ctx, client, y.store.config)
	check(t, err)
	dies := &cutter{left: 1 << 20}
	dies.see = func() {
		if y.client.HExists(ctx, y.store.conn.Partition.State(), "pg").Val() {
			dies.left = 1
		}
	}
	client.AddHook(dies)
	slower := manyTenants(2, 130, 9)
	slower.LongestFill = time.Hour
	if err := editor.PutPolicy(ctx, slower); err == nil {
		t.Fatal("the editor lives on")
	}
	check(t, y.store.SpreadPolicy(ctx))
	if version, _, err := y.store.PolicyEdit(ctx); err != nil || version != 2 {
		t.Fatalf("version %d, %v", version, err)
	}
	if left := y.client.PTTL(ctx, bucket).Val(); left < 30*time.Minute {
		t.Errorf("a bucket that fills in an hour is forgotten, and so full, in %v", left)
	}
}
