package migrate

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/headgate/headgate/buckets"
	"github.com/headgate/headgate/internal/keyspace"
	"github.com/headgate/headgate/internal/redisconn"
	"github.com/headgate/headgate/store"
)

// remove takes what has moved out of partitions that stay in use. What goes as a whole goes when all is committed.
func (m *Migration) remove(ctx context.Context) error {
	if !m.inPlace {
		return nil
	}
	for i, part := range m.to {
		if err := m.removeJobs(ctx, i); err != nil {
			return err
		}
		err := unlink(ctx, part.conn, func(name string) bool {
			owner, owned := ownerOf(name)
			return owned && m.moves(i, owner)
		})
		if err != nil {
			return err
		}
		if err := errors.Join(m.removeGates(ctx, i), m.removeUsage(ctx, i), m.removeRecords(ctx, i)); err != nil {
			return err
		}
	}
	return nil
}

// removeGates ends pauses and suspensions of tenants that have moved, and what scales their limits, where they were.
func (m *Migration) removeGates(ctx context.Context, from int) error {
	part := m.from[from]
	gates, err := part.Gates(ctx)
	if err != nil {
		return err
	}
	for _, g := range gates {
		if tenant, ofTenant := g.Name.Tenant(); ofTenant && tenant != store.Every && m.moves(from, tenant) && g.Paused() {
			if _, err := part.Unpause(ctx, g.Name, store.Intervention{Own: true}); err != nil {
				return err
			}
		}
	}
	suspensions, err := part.Suspensions(ctx)
	if err != nil {
		return err
	}
	for _, p := range suspensions {
		if tenant, ofTenant := p.Name.Tenant(); ofTenant && m.moves(from, tenant) {
			if _, err := part.Resume(ctx, p.Name, store.Intervention{Own: true}); err != nil {
				return err
			}
		}
	}
	scales, err := part.Scales(ctx)
	if err != nil {
		return err
	}
	for _, s := range scales {
		if tenant, ofTenant := s.Target.Tenant(); ofTenant && m.moves(from, tenant) {
			if _, err := part.ScaleLimits(ctx, s.Target, 0, 0, store.Intervention{Own: true}); err != nil {
				return err
			}
		}
	}
	return nil
}

// commit lets processes in that know the new layout. The first partition, which each reads before the others, goes last.
func (m *Migration) commit(ctx context.Context) error {
	for _, part := range slices.Backward(m.to) {
		if err := part.mark(ctx, strconv.Itoa(len(m.to)), m.id, m.targetRole()); err != nil {
			return err
		}
	}
	return nil
}

// tidy deletes what nobody needs any more: partitions that there are no more, and on another Redis all but a state that says
// where the deployment has moved. The first partition goes last, so whoever is killed here finds what is left to do.
func (m *Migration) tidy(ctx context.Context) error {
	for _, part := range m.to {
		if err := part.forgetCarried(ctx); err != nil {
			return err
		}
	}
	if m.inPlace {
		return m.unlinkStrays(ctx, len(m.to))
	}
	for i, part := range slices.Backward(m.from) {
		m.observe("delete what has moved", int64(len(m.from)-1-i), int64(len(m.from)))
		if err := unlink(ctx, part.conn, func(name string) bool { return name != "state" }); err != nil {
			return err
		}
		pipe := redisconn.Client(part.conn).TxPipeline()
		pipe.Del(ctx, part.conn.Partition.State())
		pipe.HSet(ctx, part.conn.Partition.State(), redisconn.LayoutField, ">"+m.config.Target, migrationField, m.id, redisconn.DataField, redisconn.DataVersion)
		if _, err := pipe.Exec(ctx); err != nil {
			return fmt.Errorf("write where it has moved: %w", redisconn.Unread(err))
		}
	}
	return nil
}

// unlinkStrays deletes the partitions from one on of which a migration has left something.
func (m *Migration) unlinkStrays(ctx context.Context, from int) error {
	for i := from; i < store.MaxPartitions; i++ {
		conn := m.to[0].conn.At(keyspace.New(m.config.Prefix, i))
		text, err := redisconn.Client(conn).HGet(ctx, conn.Partition.State(), redisconn.LayoutField).Result()
		if err != nil && !redisconn.IsNil(err) {
			return fmt.Errorf("look for partition %d: %w", i, redisconn.Unread(err))
		}
		if strings.Contains(text, ">") {
			if err := unlink(ctx, conn, func(string) bool { return true }); err != nil {
				return err
			}
		}
	}
	return nil
}

// carriedField begins the names of what carry.lua notes.
const carriedField = "carried:"

func (p *partition) forgetCarried(ctx context.Context) error {
	fields, err := redisconn.Client(p.conn).HKeys(ctx, p.conn.Partition.State()).Result()
	if err != nil {
		return fmt.Errorf("read state: %w", redisconn.Unread(err))
	}
	for _, field := range fields {
		if strings.HasPrefix(field, carriedField) {
			if err := redisconn.Client(p.conn).HDel(ctx, p.conn.Partition.State(), field).Err(); err != nil {
				return fmt.Errorf("write state: %w", redisconn.Unread(err))
			}
		}
	}
	return nil
}

// globalBucket is a partition's part of the global limit, in the units of fragments/bucket.lua. Of fixed windows it has no rate, but when the
// window ends and how long it is; of sliding ones it has what was taken when.
type globalBucket struct {
	level, burst, rate float64
	ends, length       int64
	sliding            buckets.Bucket // absent unless it is one
}

// text is how it is noted.
func (b globalBucket) text() (string, error) {
	if b.sliding.Sliding() {
		packed, err := b.sliding.MarshalText()
		if err != nil {
			return "", fmt.Errorf("write part of the global limit: %w", err)
		}
		return slidingMark + hex.EncodeToString(packed), nil
	}
	text := fmt.Sprintf("%.0f %.17g %.17g", b.level, b.burst, b.rate)
	if b.ends > 0 {
		text += fmt.Sprintf(" %d %d", b.ends, b.length)
	}
	return text, nil
}

// slidingMark begins the text of a sliding window.
const slidingMark = "sliding "

func parseGlobal(text string) (b globalBucket, err error) {
	if packed, sliding := strings.CutPrefix(text, slidingMark); sliding {
		var raw []byte
		if raw, err = hex.DecodeString(packed); err == nil {
			b.sliding, err = buckets.Parse(string(raw))
		}
		if err != nil {
			return b, fmt.Errorf("read part of the global limit %q: %w", text, err)
		}
		return b, nil
	}
	if n, err := fmt.Sscan(text, &b.level, &b.burst, &b.rate, &b.ends, &b.length); n != 3 && err != nil {
		return b, fmt.Errorf("read part of the global limit %q: %w", text, err)
	}
	return b, nil
}

// divideGlobal divides the tokens of the global limit that there are by the new number of partitions, and those that others have beside what is kept
// of it.
func (m *Migration) divideGlobal(ctx context.Context) error {
	if err := m.divideBucket(ctx, "gb", "global"); err != nil {
		return err
	}
	return m.divideBucket(ctx, "gbo", "others")
}

// divideBucket divides a bucket of the global limit, by its field. In place it writes over what it has read, so what each is to have is noted before, under
// a name of its own.
func (m *Migration) divideBucket(ctx context.Context, field, name string) error {
	noted, first := carriedField+m.id+":"+name, m.to[0]
	text, err := redisconn.Client(first.conn).HGet(ctx, first.conn.Partition.State(), noted).Result()
	if redisconn.IsNil(err) {
		var each globalBucket
		if each, err = m.eachGlobal(ctx, field); err != nil {
			return err
		}
		if text, err = each.text(); err != nil {
			return err
		}
		err = redisconn.Client(first.conn).HSet(ctx, first.conn.Partition.State(), noted, text).Err()
	}
	if err != nil {
		return fmt.Errorf("note part of the global limit: %w", redisconn.Unread(err))
	}
	each, err := parseGlobal(text)
	if err != nil {
		return err
	}
	for _, part := range m.to { // Shares of its rate were shares of another number of parts.
		if err := redisconn.Client(part.conn).HDel(ctx, part.conn.Partition.State(), "gm").Err(); err != nil {
			return fmt.Errorf("forget share of the global limit: %w", redisconn.Unread(err))
		}
	}
	if each.rate == 0 && each.ends == 0 && !each.sliding.Sliding() {
		return nil
	}
	for _, part := range m.to {
		if err := part.putGlobal(ctx, field, each); err != nil {
			return err
		}
	}
	return nil
}

// eachGlobal returns what each partition is to have of the global limit; none where all are full, or there is none.
func (m *Migration) eachGlobal(ctx context.Context, field string) (each globalBucket, err error) {
	var sum globalBucket
	var sliding []buckets.Bucket
	found := 0.0
	for _, part := range m.from[:m.before] {
		b, ok, err := part.globalBucket(ctx, field)
		if err != nil {
			return each, err
		}
		sliding = append(sliding, b.sliding)
		if ok && b.ends > sum.ends { // A window under way: what others have of one that is over is as good as full.
			sum, found = globalBucket{ends: b.ends, length: b.length}, 0
		}
		if ok && b.ends == sum.ends {
			found++
			sum.level, sum.burst, sum.rate = sum.level+b.level, sum.burst+b.burst, sum.rate+b.rate
		}
	}
	if each.sliding = buckets.DivideSliding(sliding, len(m.to)); found == 0 || each.sliding.Sliding() {
		return each, nil
	}
	before, parts := float64(m.before), float64(len(m.to))
	full := (before - found) * sum.burst / found // what is not stored is full
	each = globalBucket{level: math.Floor((sum.level + full) / parts), burst: sum.burst * before / found / parts, rate: sum.rate * before / found / parts}
	each.ends, each.length = sum.ends, sum.length
	return each, nil
}

// globalBucket reads a bucket of the global limit as it stands now.
func (p *partition) globalBucket(ctx context.Context, field string) (b globalBucket, found bool, err error) {
	text, err := redisconn.Client(p.conn).HGet(ctx, p.conn.Partition.State(), field).Result()
	if redisconn.IsNil(err) || err == nil && text == "" {
		return b, false, nil
	}
	if err != nil {
		return b, false, fmt.Errorf("read global bucket: %w", redisconn.Unread(err))
	}
	clock, err := p.bucketClock(ctx)
	if err != nil {
		return b, false, err
	}
	stored, err := buckets.Parse(text)
	if err != nil {
		return b, false, fmt.Errorf("read global bucket: %w", err)
	}
	switch {
	case stored.Sliding():
		return globalBucket{sliding: stored}, true, nil
	case stored.Windowed():
		return globalBucket{level: float64(stored.Level), burst: float64(stored.Quota), ends: int64(stored.Stamp), length: int64(stored.Fill)}, true, nil
	}
	level, passed := float64(stored.Level), float64(max(0, redisconn.Whole(clock)-int64(stored.Stamp)))
	b.rate = float64(stored.Rate)
	b.burst = level + float64(stored.Fill)*b.rate
	b.level = min(b.burst, level+passed*b.rate)
	return b, true, nil
}

func (p *partition) putGlobal(ctx context.Context, field string, b globalBucket) error {
	clock, err := p.bucketClock(ctx)
	if err != nil {
		return err
	}
	text := fmt.Sprintf("%.0f:%s:%.0f:%s", b.level, clock, math.Ceil((b.burst-b.level)/b.rate), strconv.FormatFloat(b.rate, 'g', 17, 64))
	if b.ends > 0 || b.sliding.Sliding() {
		window := buckets.Bucket{Level: buckets.Micro(b.level), Stamp: buckets.Instant(b.ends), Fill: buckets.Span(b.length), Quota: buckets.Micro(b.burst)}
		if b.sliding.Sliding() {
			window = b.sliding
		}
		packed, err := window.MarshalText()
		if err != nil {
			return fmt.Errorf("write global bucket: %w", err)
		}
		text = string(packed)
	}
	if err := redisconn.Client(p.conn).HSet(ctx, p.conn.Partition.State(), field, text).Err(); err != nil {
		return fmt.Errorf("write global bucket: %w", redisconn.Unread(err))
	}
	return nil
}
