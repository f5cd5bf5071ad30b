package gates

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/internal/redisconn"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/redisstore/internal/codec"
)

// Adapt moves a limit that moves by itself. Sent again it does no harm.
func (s *Bounds) Adapt(ctx context.Context, to store.Adapt) (number int64, err error) {
	reply, err := s.conn.RunFor(ctx, 2, "adapt", s.conn.Now, string(to.Gate), to.Limit, to.Cause, to.Owner, to.Version, to.Number, codec.Micros(to.Life), to.Back)
	if err != nil {
		return 0, err
	}
	switch reply[0] {
	case "held":
		return 0, store.ErrNotHolder
	case "stale":
		return 0, fmt.Errorf("%w: version %s is in force, not %d", store.ErrStale, reply[1], to.Version)
	case "none":
		return 0, fmt.Errorf("%w: %s", store.ErrNotAdaptive, to.Gate)
	}
	return redisconn.Whole(reply[1]), nil
}

// Freeze keeps a limit from moving by itself, or lets it go on.
func (s *Bounds) Freeze(ctx context.Context, gate store.GateName, frozen bool, by store.Intervention) (was bool, err error) {
	if err := by.Validate(); err != nil {
		return false, err
	}
	action, flag := store.AuditThaw, 0
	if frozen {
		action, flag = store.AuditFreeze, 1
	}
	reply, err := s.conn.RunFor(ctx, 1, "freeze", s.conn.Now, string(gate), flag, codec.InterventionText(by, action))
	if err == nil && reply[0] == "none" {
		err = fmt.Errorf("%w: %s", store.ErrNotAdaptive, gate)
	}
	return err == nil && reply[0] == "was", err
}

// Override puts a limit in force instead of that of its loop, or ends that.
func (s *Bounds) Override(ctx context.Context, gate store.GateName, limit int, duration time.Duration, by store.Intervention) (number int64, err error) {
	if err := by.Validate(); err != nil {
		return 0, err
	}
	action := store.AuditOverride
	if duration == 0 {
		action = store.AuditOverrideEnd
	}
	reply, err := s.conn.Run(ctx, "override", s.conn.Now, string(gate), limit, codec.Micros(duration), codec.InterventionText(by, action))
	if err != nil {
		return 0, err
	}
	switch reply[0] {
	case "none":
		return 0, fmt.Errorf("%w: %s", store.ErrNotAdaptive, gate)
	case "range":
		a := store.Adaptation{Gate: gate, Least: int(redisconn.Whole(reply[1])), Most: int(redisconn.Whole(reply[2]))}
		return 0, a.OutOfRange(limit)
	}
	return redisconn.Whole(reply[1]), nil
}

// Adaptations returns every limit that moves by itself, by its gate. Where there is none it is one read, else two.
func (s *Bounds) Adaptations(ctx context.Context) ([]store.Adaptation, error) {
	base := s.conn.Partition.Base()
	rows, err := s.conn.WholeHash(ctx, base+"adaptive", "")
	if err != nil || len(rows) == 0 {
		return nil, err
	}
	names := slices.Sorted(maps.Keys(rows))
	pipe := redisconn.Client(s.conn).Pipeline()
	gates := pipe.HMGet(ctx, base+"gates", names...)
	lives := make([]*redis.SliceCmd, len(names))
	for i, name := range names {
		if kind, downstream := store.GateName(name).Split(); kind != store.KindLimits {
			lives[i] = pipe.HMGet(ctx, base+"br:"+downstream, "m", "x", "a")
		}
	}
	if _, err := pipe.Exec(ctx); err != nil && !redisconn.IsNil(err) {
		return nil, fmt.Errorf("read adaptive limits: %w", redisconn.Unread(err))
	}
	all := make([]store.Adaptation, len(names))
	for i, name := range names {
		one, err := parseAdaptation(name, rows[name])
		if err == nil && lives[i] != nil {
			err = see(&one, redisconn.TextAt(gates.Val(), i), redisconn.TextAt(lives[i].Val(), 0), redisconn.TextAt(lives[i].Val(), 1))
			one.Refused = redisconn.Whole(redisconn.TextAt(lives[i].Val(), 2))
		}
		if err != nil {
			return nil, fmt.Errorf("read adaptive limit %s: %w", name, err)
		}
		all[i] = one
	}
	return all, nil
}

// see adds what its gate and its downstream's breaker tell.
func see(a *store.Adaptation, gate, meta, life string) error {
	if gate != "" && !a.IsRate() {
		g, err := codec.ParseGate(string(a.Gate), gate, nil)
		if err != nil {
			return err
		}
		a.Held, a.Paused = g.Held, g.Paused() && !strings.HasPrefix(gate, "*")
	}
	if meta == "" {
		return nil
	}
	_, m, err := codec.ParseMeta(meta, 0)
	if err != nil {
		return err
	}
	x, err := codec.ParseExtra(life)
	a.Calls, a.Failures, a.Ran = codec.LifeCalls(x)
	a.Heard = time.UnixMicro(m[codec.MetaHeard])
	return err
}

// The places in a row of fragments/share.lua.
const (
	rowName = iota
	rowCause
	rowWhy
	rowOwn
	rowLeast
	rowMost
	rowLimit
	rowNumber
	rowAt
	rowBefore
	rowChanged
	rowRaised
	rowLowered
	rowTold
	rowToldAt
	rowFrozen
	rowSize
)

func parseAdaptation(gate, text string) (a store.Adaptation, err error) {
	parts := strings.SplitN(text, "|", rowSize)
	if len(parts) < rowSize {
		return a, redisconn.ErrUnknownReply
	}
	n := [rowSize]int64{}
	for i := rowOwn; i < rowFrozen; i++ {
		if n[i], err = strconv.ParseInt(parts[i], 10, 64); err != nil {
			return a, redisconn.ErrUnknownReply
		}
	}
	a = store.Adaptation{
		Name: parts[rowName], Gate: store.GateName(gate), Own: int(n[rowOwn]), Least: int(n[rowLeast]), Most: int(n[rowMost]), Limit: int(n[rowLimit]),
		Cause: parts[rowCause], At: timeOf(n[rowAt]), Before: int(n[rowBefore]), Why: parts[rowWhy], Changed: timeOf(n[rowChanged]),
		Raised: n[rowRaised], Lowered: n[rowLowered],
	}
	if a.IsRate() {
		of := strings.SplitN(a.Name, "~", 4) // burst, push, eased, name
		if len(of) < 4 {
			return a, redisconn.ErrUnknownReply
		}
		a.Name, a.Push, a.Eased = of[3], admission.PressureLevel(redisconn.Whole(of[1])), timeOf(redisconn.Whole(of[2]))
	}
	if back, name, reduced := strings.Cut(a.Name, "~"); reduced {
		a.Name, a.Back = name, int(redisconn.Whole(back))
	}
	if frozen := parts[rowFrozen]; frozen != "" {
		a.Frozen = &store.Intervention{}
		if at := strings.LastIndex(frozen, "\x02"); at > strings.LastIndex(frozen, "\x01") {
			until, back, _ := strings.Cut(frozen[at+1:], "|")
			a.Override, frozen = &store.Override{Until: timeOf(redisconn.Whole(until)), Back: int(redisconn.Whole(back))}, frozen[:at]
		}
		a.Frozen.Reason, a.Frozen.Author, a.Frozen.Since = codec.ParseHoldReason(frozen)
	}
	return a, nil
}

func timeOf(us int64) time.Time {
	if us == 0 {
		return time.Time{}
	}
	return time.UnixMicro(us)
}

// loadKeep is how long a minute of points is kept, a minute longer than they are told.
const loadKeep = store.LoadHistoryLife + 2*time.Minute

// NoteLoad keeps a point of the history of services.
func (s *Bounds) NoteLoad(ctx context.Context, to store.LoadNote) error {
	if len(to.Services) == 0 {
		return nil
	}
	args := append(make([]any, 0, 4+2*len(to.Services)), s.conn.Now, to.Owner, codec.Micros(store.LoadStep), int64(loadKeep/time.Second))
	for _, name := range slices.Sorted(maps.Keys(to.Services)) {
		args = append(args, name, to.Services[name])
	}
	reply, err := s.conn.Run(ctx, "load", args...)
	if err != nil {
		return err
	}
	switch reply[0] {
	case "held":
		return store.ErrNotHolder
	case "none":
		return store.ErrNotMeasured
	}
	return nil
}

// NoteTrigger notes that a trigger acts, or does no more. Sent again it does no harm.
func (s *Bounds) NoteTrigger(ctx context.Context, to store.TriggerNote) error {
	reply, err := s.conn.RunFor(ctx, 2, "trigger", s.conn.Now, to.Name, codec.Micros(to.Life), to.Do+"|"+to.Of+"|"+to.Why, to.Owner, to.Version,
		codec.InterventionText(to.By(), to.Action()))
	if err != nil {
		return err
	}
	switch reply[0] {
	case "held":
		return store.ErrNotHolder
	case "stale":
		return fmt.Errorf("%w: version %s is in force, not %d", store.ErrStale, reply[1], to.Version)
	}
	return nil
}

// Triggers returns what is noted of triggers, by name: one read.
func (s *Bounds) Triggers(ctx context.Context) ([]store.TriggerState, error) {
	rows, err := s.conn.WholeHash(ctx, s.conn.Partition.Base()+"triggers", "")
	if err != nil {
		return nil, err
	}
	var all []store.TriggerState
	for _, name := range slices.Sorted(maps.Keys(rows)) {
		const words = 5 // until, since, do, of, why
		parts := strings.SplitN(rows[name], "|", words)
		if len(parts) < words {
			return nil, fmt.Errorf("read trigger %s: %w", name, redisconn.ErrUnknownReply)
		}
		all = append(all, store.TriggerState{
			Name: name, Until: timeOf(redisconn.Whole(parts[0])), Since: timeOf(redisconn.Whole(parts[1])), Do: parts[2], Of: parts[3], Why: parts[4],
		})
	}
	return all, nil
}

// Press notes how much a queue is pressed. Sent again it does no harm.
func (s *Bounds) Press(ctx context.Context, to store.Press) (number int64, err error) {
	reply, err := s.conn.RunFor(ctx, 2, "pressure", s.conn.Now, to.Queue, int(to.Pressure.Level), codec.Thousandths(to.Pressure.Score), codec.Micros(to.Life),
		codec.Micros(to.Pressure.RetryAfter), to.Parts[:min(len(to.Parts), store.MaxParts)], to.Owner, to.Version, to.Number)
	if err != nil {
		return 0, err
	}
	switch reply[0] {
	case "held":
		return 0, store.ErrNotHolder
	case "stale":
		return 0, fmt.Errorf("%w: version %s is in force, not %d", store.ErrStale, reply[1], to.Version)
	case "none":
		return 0, fmt.Errorf("%w: %s", store.ErrNotMeasured, to.Queue)
	}
	return redisconn.Whole(reply[1]), nil
}
