package redisstore

import (
	"context"
	"fmt"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/redisconn"
	"github.com/headgate/headgate/store/redisstore/internal/looking"
)

// beforeCounts calls what is to happen between the naming of the lanes and each count.
type beforeCounts struct{ do func() }

func (b beforeCounts) DialHook(next redis.DialHook) redis.DialHook          { return next }
func (b beforeCounts) ProcessHook(next redis.ProcessHook) redis.ProcessHook { return next }

func (b beforeCounts) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, commands []redis.Cmder) error {
		b.do()
		return next(ctx, commands)
	}
}

// TestACensusSaysWhenItIsNotKnown: while jobs go to lanes that were not named, what does not add up says nothing; where nothing moves it
// is sure.
func TestACensusSaysWhenItIsNotKnown(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	y.admit(mail("acme", "a"))
	c, err := y.store.Census(t.Context())
	check(t, err)
	if !c.Known() || !c.Conserved() {
		t.Errorf("of a job that waits: %+v", c)
	}
	tenants, counts := 0, 0
	other, err := newStore(y.client, y.store.config, "")
	check(t, err)
	crowd := &yard{tb: t, store: other}
	client := redis.NewClient(y.client.Options())
	defer func() { _ = client.Close() }()
	counter, err := newStore(client, y.store.config, "")
	check(t, err)
	counter.conn.Now = y.store.conn.Now
	client.AddHook(beforeCounts{func() {
		counts++
		tenants++
		crowd.admit(mail(fmt.Sprint("tenant-", tenants), "a"))
	}})
	c, err = counter.Census(t.Context())
	check(t, err)
	if c.Known() || c.Conserved() || c.Unaccounted() != 0 || counts != looking.CensusTries {
		t.Errorf("while jobs come to new lanes, after %d counts: %+v", counts, c)
	}
	check(t, y.client.HDel(t.Context(), y.store.Keys().Jobs(), "acme:a").Err())
	c, err = y.store.Census(t.Context())
	check(t, err)
	if !c.Known() || c.Conserved() || c.Unaccounted() != 1 {
		t.Errorf("with a record gone: %+v", c)
	}
	counters, err := y.store.Counters(t.Context())
	check(t, err)
	if n, known := counters.Unaccounted(); n != 1 || !known {
		t.Errorf("with a record gone: %+v", counters)
	}
}

// TestTheCountsOfAllPartitionsAreKnownWhereThoseOfEachAre: one record of one of them is told.
func TestTheCountsOfAllPartitionsAreKnownWhereThoseOfEachAre(t *testing.T) {
	t.Parallel()
	s := openParts(t, 3, 30)
	for want := range int64(2) {
		c, err := s.Census(t.Context())
		check(t, err)
		counters, err := s.Counters(t.Context())
		check(t, err)
		if n, known := counters.Unaccounted(); !c.Known() || c.Conserved() != (want == 0) || c.Unaccounted() != want || n != want || !known {
			t.Errorf("with %d records gone: %+v, %+v", want, c, counters)
		}
		part := s.parts[1]
		keys, err := redisconn.Client(part.conn).HRandField(t.Context(), part.Keys().Jobs(), 1).Result()
		check(t, err)
		check(t, redisconn.Client(part.conn).HDel(t.Context(), part.Keys().Jobs(), keys...).Err())
	}
}
