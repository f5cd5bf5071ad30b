package limits

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/headgate/headgate/internal/redisconn"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/redisstore/internal/codec"
)

// ScaleLimits scales limits for a time, or ends that, as store.Buckets.ScaleLimits.
func (s *Limits) ScaleLimits(ctx context.Context, target store.GateName, part float64, duration time.Duration, by store.Intervention) (was bool, err error) {
	if err := store.ValidateScale(target, part, duration, by); err != nil {
		return false, err
	}
	action := store.AuditScaleEnd
	if duration > 0 {
		action = store.AuditScale
	}
	reply, err := s.conn.RunFor(ctx, 1, "scale", s.conn.Now, string(target), store.PartText(part), codec.Micros(duration), codec.InterventionText(by, action))
	if err != nil {
		return false, err
	}
	switch reply[0] {
	case "full":
		return false, store.ErrTooManyScales
	case "none":
		return false, nil
	case "scaled", "ended":
		return true, nil
	}
	return false, fmt.Errorf("scale: reply %q: %w", reply[0], redisconn.ErrUnknownReply)
}

// Scales returns what limits are scaled to, by target: what is in `scales`, while `pat` says that there may be some, and has not ended by the buckets'
// time.
func (s *Limits) Scales(ctx context.Context) (all []store.Scale, err error) {
	pipe := redisconn.Client(s.conn).Pipeline()
	clocks, now := redisconn.ReadState(ctx, pipe, s.conn.Partition, "t", "bt", "pat"), pipe.Time(ctx)
	rows := pipe.HGetAll(ctx, s.conn.Partition.Base()+"scales")
	if _, err := pipe.Exec(ctx); err != nil {
		return nil, fmt.Errorf("read scales: %w", redisconn.Unread(err))
	}
	last, clock := redisconn.Whole(redisconn.TextAt(clocks.Val(), 0)), redisconn.Whole(redisconn.TextAt(clocks.Val(), 1))
	if !strings.Contains(redisconn.TextAt(clocks.Val(), 2), ".") {
		return nil, nil
	}
	at := now.Val().UnixMicro()
	if s.conn.Now != "" { // a test's
		at = redisconn.Whole(s.conn.Now)
	}
	clock += max(0, at-last)
	for _, target := range slices.Sorted(maps.Keys(rows.Val())) {
		one, ends, err := parseScale(target, rows.Val()[target])
		if err != nil {
			return nil, fmt.Errorf("read scale of %s: %w", target, err)
		}
		if kind, _ := one.Target.Split(); kind == store.KindLimits {
			continue // It moves by itself.
		}
		if one.Until = time.UnixMicro(ends - clock + at); ends > clock {
			all = append(all, one)
		}
	}
	return all, nil
}

// parseScale reads what fragments/clock.lua keeps of a scale: part, end, and who and why.
func parseScale(target, text string) (one store.Scale, ends int64, err error) {
	words := strings.SplitN(text, "|", 3)
	if len(words) < 3 {
		return one, 0, redisconn.ErrUnknownReply
	}
	one.Target = store.GateName(target)
	one.Reason, one.Author, one.Since = codec.ParseHoldReason(words[2])
	if one.Part, err = strconv.ParseFloat(words[0], 64); err == nil {
		ends, err = strconv.ParseInt(words[1], 10, 64)
	}
	if err != nil {
		err = errors.Join(redisconn.ErrUnknownReply, err)
	}
	return one, ends, err
}
