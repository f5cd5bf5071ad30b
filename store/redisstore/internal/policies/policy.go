package policies

import (
	"cmp"
	"context"
	"errors"
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

func overflowText(o store.Overflow) string {
	switch o.Policy {
	case "":
		return "-"
	case store.NoBound:
		return string(store.NoBound)
	default: // It has figures.
	}
	if o.MaxMoved > 0 {
		return fmt.Sprintf("m,%d,%d,%d,%d,%d", o.MaxJobs, o.MaxBytes, o.MaxSpilled, o.LowWater, o.MaxMoved)
	}
	return fmt.Sprintf("%c,%d,%d,%d,%d", o.Policy[0], o.MaxJobs, o.MaxBytes, o.MaxSpilled, o.LowWater)
}

// overflowsText is a bound, and after it those of tiers that differ: BOUND;TIER=BOUND….
func overflowsText(o store.Overflow, tiers map[string]store.Overflow) string {
	bounds := []string{overflowText(o)}
	for _, tier := range slices.Sorted(maps.Keys(tiers)) {
		bounds = append(bounds, tier+"="+overflowText(tiers[tier]))
	}
	return strings.Join(bounds, ";")
}

// OverflowName is the name of the setting of a tenant's overflow.
func OverflowName(o store.TenantOverflow) string {
	if o.Queue == "" {
		return o.Tenant
	}
	return o.Tenant + ":" + o.Queue
}

func capText(c store.Cap) string {
	text, burst := strconv.Itoa(c.Limit), ""
	if c.ByTier {
		text += codec.ByTier
	}
	if kind, _ := c.Gate.Split(); kind == store.KindTenantRate || kind == store.KindDownstreamRate {
		burst = "|" + strconv.FormatInt(codec.Burst(c.Rate), 10)
		if c.Least == 0 {
			text = codec.Rate(c.Rate)
		}
	}
	if c.Least > 0 {
		text += "~" + strconv.Itoa(c.Least) + "~" + strconv.Itoa(c.Most)
	}
	text += burst
	if c.Parts > 0 {
		text += "/" + strconv.Itoa(c.Parts)
	}
	if c.Least > 0 {
		text += "~" + c.Loop
	}
	return text
}

// PutPolicy stores a new version of the policy, if the expected one is in force. After an error InDoubt, the same call
// again is safe, and finishes what the first one began.
func (s *Policies) PutPolicy(ctx context.Context, u store.PolicyUpdate) error {
	if err := u.Validate(); err != nil {
		return err
	}
	return s.StorePolicy(ctx, u, nil)
}

// StorePolicy stores the policy of one partition, and with the first one's what the others are to store.
func (s *Policies) StorePolicy(ctx context.Context, u store.PolicyUpdate, copied []byte) error {
	if err := s.RunPolicy(ctx, u, copied); err != nil {
		return err
	}
	if err := s.countBounds(ctx); err != nil {
		return err
	}
	if u.SameBuckets {
		return nil
	}
	return s.keepBuckets(ctx, longestFill(&u))
}

// longestFill is in how long every bucket is full by an update.
func longestFill(u *store.PolicyUpdate) time.Duration {
	return cmp.Or(u.LongestFill, admission.MaxRefill)
}

// CheckPolicy reports whether PutPolicy would store the same now, and changes nothing.
func (s *Policies) CheckPolicy(ctx context.Context, u store.PolicyUpdate) error {
	if err := u.Validate(); err != nil {
		return err
	}
	u.Edit = store.OnlyAsk
	return s.RunPolicy(ctx, u, nil)
}

// RunPolicy stores an update in one script where little differs, else in steps.
func (s *Policies) RunPolicy(ctx context.Context, u store.PolicyUpdate, copied []byte) error {
	if err := s.finishOthers(ctx); err != nil {
		return err
	}
	wanted := SettingsOf(&u)
	from, err := s.settingsBefore(ctx, &u)
	if err != nil {
		return err
	}
	e := changes(from, wanted)
	if u.Edit == store.OnlyAsk {
		e = difference{with: slices.DeleteFunc(e.with, func(m settingMove) bool { return m.Kind != SettingQueue })}
	} else if e.work() > portionWork {
		return s.runSteps(ctx, &u, copied, &e, wanted.digest())
	}
	args := []any{s.conn.Now, u.Expected}
	for _, f := range updateFields(&u, copied, wanted.digest()) {
		args = append(args, f.value)
	}
	reply, err := s.conn.Run(ctx, "policy", moveArgs(args, e.all())...)
	if err != nil {
		return err
	}
	return readStored(&u, reply)
}

// updateField is an argument of policy, and a field of an edit that is stored in steps.
type updateField struct {
	name  string
	value any
}

func updateFields(u *store.PolicyUpdate, copied []byte, digest string) []updateField {
	restored := ""
	if u.Restored != 0 {
		restored = strconv.FormatInt(u.Restored, 10)
	}
	return []updateField{
		{"version", u.Version},
		{"text", u.Text},
		{"window", codec.Micros(u.Window)},
		{"edit", u.Edit},
		{"author", u.Author},
		{"reason", u.Reason},
		{"restored", restored},
		{"changes", u.Changes},
		{"copy", copied},
		{"digest", digest},
	}
}

// readReply reads what policy and stage answer.
func readStored(u *store.PolicyUpdate, reply []string) error {
	switch word := reply[0]; {
	case word == "stored" || word == "more" || word == "fine" || word == "begun": // What is left of a fill is the timers'.
		return nil
	case len(reply) != 2:
		return fmt.Errorf("store policy: %w", redisconn.ErrUnknownReply)
	case word == "conflict":
		return fmt.Errorf("%w: version %s is in force, %d was expected", store.ErrConflict, reply[1], u.Expected)
	case word == "editing":
		return fmt.Errorf("%w: somebody else's edit of version %d is being stored", store.ErrConflict, u.Expected)
	default:
		return fmt.Errorf("%w: queue %s", store.ErrClassInUse, reply[1])
	}
}

// settingsBefore returns the settings in force: those of Before, where Redis says that they are the same, else what it has.
func (s *Policies) settingsBefore(ctx context.Context, u *store.PolicyUpdate) (Settings, error) {
	if u.Before != nil {
		known := SettingsOf(u.Before)
		told, err := redisconn.Client(s.conn).HGet(ctx, s.conn.Partition.State(), "ps").Result()
		if err != nil && !redisconn.IsNil(err) {
			return nil, fmt.Errorf("read settings: %w", redisconn.Unread(err))
		}
		if told == strconv.FormatInt(u.Expected, 10)+" "+known.digest() {
			return known, nil
		}
	}
	return s.Stored(ctx)
}

// countBounds brings jobs that entered before they were bounded into the depth of their tenant and queue, where an edit has left that
// to be done.
func (s *Policies) countBounds(ctx context.Context) error {
	const page = 100
	of, err := redisconn.Client(s.conn).HGet(ctx, s.conn.Partition.State(), "pr").Result()
	if redisconn.IsNil(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("read policy: %w", redisconn.Unread(err))
	}
	for cursor := "0"; ; {
		reply, err := s.conn.Run(ctx, "recount", s.conn.Now, cursor, page, of)
		if err != nil {
			return fmt.Errorf("count jobs into their depth: %w", err)
		}
		if cursor = reply[0]; cursor == "0" {
			return nil
		}
	}
}

// keepBuckets puts the end of every bucket that is stored off until it is full by the policy now in force. From the
// store of a version on none is written under an older one; each outlasts its full time by a slack (admit's
// TTL_SLACK), so one that ends before this comes to it was full when the policy changed.
func (s *Policies) keepBuckets(ctx context.Context, fill time.Duration) error {
	node := redisconn.Client(s.conn)
	const page = 256
	for cursor := uint64(0); ; {
		keys, next, err := node.Scan(ctx, cursor, s.conn.Partition.Buckets("*"), page).Result()
		if err != nil {
			return fmt.Errorf("keep buckets: %w", redisconn.Unread(err))
		}
		if len(keys) > 0 {
			pipe := node.Pipeline()
			for _, key := range keys {
				pipe.Do(ctx, "pexpire", key, fill.Milliseconds(), "gt")
			}
			if _, err := pipe.Exec(ctx); err != nil {
				return fmt.Errorf("keep buckets: %w", redisconn.Unread(err))
			}
		}
		if cursor = next; cursor == 0 {
			return nil
		}
	}
}

func settingsText(q store.QueueSettings) string {
	parts := make([]string, len(q.Classes))
	for i, c := range q.Classes {
		parts[i] = string(c.Name) + "=" + strconv.Itoa(c.Weight)
	}
	expired := "dead"
	if q.DropExpired {
		expired = "drop"
	}
	return strings.Join(parts, ",") + "|" + strings.Join([]string{
		codec.Micros(q.Horizon), expired, codec.Micros(q.MaxWait), overflowsText(q.Overflow, q.Tiers), strconv.Itoa(cmp.Or(q.PoisonLimit, store.DefaultPoisonLimit)),
		codec.Micros(q.KeepDead), strconv.Itoa(cmp.Or(q.MaxDead, store.DefaultMaxDead)),
	}, "|")
}

// Policy returns the text of the policy in force; nil when none was stored.
func (s *Policies) Policy(ctx context.Context) ([]byte, error) {
	text, err := redisconn.Client(s.conn).Get(ctx, s.conn.Partition.Policy()).Bytes()
	if errors.Is(err, redis.Nil) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read policy: %w", redisconn.Unread(err))
	}
	return text, nil
}

// queueCapsAside puts what the policy says of caps of tenants in single queues in the place of what their records say, by rows QUEUE=RECORD;POLICY,… of tenants. A gate that is not what
// its record says is as no policy's, so that an edit puts it right.
func (s Settings) queueCapsAside(rows map[string]string) {
	for tenant, row := range rows {
		for one := range strings.SplitSeq(row, ",") {
			queue, caps, _ := strings.Cut(one, "=")
			own, ofPolicy, _ := strings.Cut(caps, ";")
			key := SettingKey{SettingGate, string(store.TenantQueueGate(tenant, queue))}
			switch {
			case s[key] != own:
				s[key] = ""
			case ofPolicy != "":
				s[key] = ofPolicy
			default:
				delete(s, key)
			}
		}
	}
}

// dispatchAside reports whether a gate is the rate of a tenant whose record says one: what the policy has is beside it.
func dispatchAside(aside map[string]string, gate string) bool {
	kind, tenant := store.GateName(gate).Split()
	return kind == store.KindTenantRate && aside[tenant] != ""
}
