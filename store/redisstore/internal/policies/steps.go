package policies

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/redisconn"
	"github.com/headgate/headgate/store"
)

// An edit that differs in more than one script may change is stored in steps. It is written under its name first, then begun: from
// there on nothing but its steps stands between the version in force and the next, any process may do them, and other edits wait. The
// version changes in one of them, which producers hear of.

// stagedFor is how long an edit is kept that was written and not begun.
const stagedFor = time.Hour

// stageBatch is how many portions are written at a time.
const stageBatch = 64

// runSteps stores an update in steps.
func (s *Policies) runSteps(ctx context.Context, u *store.PolicyUpdate, copied []byte, e *difference, digest string) error {
	name := u.Edit
	if name == "" {
		name = strconv.FormatInt(u.Version, 10) + "-" + digest
	}
	e.backTo(u.Before)
	if err := s.stage(ctx, name, u, copied, e, digest); err != nil {
		return err
	}
	reply, err := s.conn.Run(ctx, "stage", s.conn.Now, u.Expected, name)
	if err != nil {
		return err
	}
	if err := readStored(u, reply); err != nil || reply[0] == "stored" {
		return err
	}
	if err := s.finishEdit(ctx); err != nil {
		return err
	}
	stored, err := s.PolicyVersion(ctx, u.Version)
	if errors.Is(err, store.ErrUnknownVersion) || err == nil && string(stored) != string(u.Text) {
		return fmt.Errorf("%w: jobs have come to wait in one that would go", store.ErrClassInUse)
	}
	return err
}

// forATime begins what stands for a limit for a time.
const forATime = "until "

// backTo has an edit that is taken back leave what the policy before it said of gates, by what is known of it, where something else was in force that
// no policy says: for that there is no text that scripts could read.
func (e *difference) backTo(u *store.PolicyUpdate) {
	var before Settings
	if u != nil {
		before = SettingsOf(u)
	}
	for i := range e.before {
		m := &e.before[i]
		if m.Kind == SettingGate && (m.before == "" || strings.HasPrefix(m.before, forATime)) {
			m.before = before[m.SettingKey]
		}
	}
}

// stage writes an edit under its name.
func (s *Policies) stage(ctx context.Context, name string, u *store.PolicyUpdate, copied []byte, e *difference, digest string) error {
	base := s.conn.Partition.Base()
	before, after := portions(e.before), portions(e.after)
	moves := make([]any, 0, len(before)+1+len(after))
	undo := make([]any, 0, len(before))
	for _, portion := range before {
		moves, undo = append(moves, portionText(portion, false)), append(undo, portionText(portion, true))
	}
	moves = append(moves, portionText(e.with, false))
	for _, portion := range after {
		moves = append(moves, portionText(portion, false))
	}
	fields := []any{"a", len(before), "c", len(after), "at", 0}
	if !u.SameBuckets {
		fields = append(fields, fillField, longestFill(u).Milliseconds())
	}
	for _, f := range updateFields(u, copied, digest) {
		fields = append(fields, f.name, f.value)
	}
	keys := []string{base + "edit:" + name, base + "moves:" + name, base + "undo:" + name}
	send := func(do func(redis.Pipeliner)) error {
		pipe := redisconn.Client(s.conn).TxPipeline()
		do(pipe)
		for _, key := range keys {
			pipe.PExpire(ctx, key, stagedFor)
		}
		if _, err := pipe.Exec(ctx); err != nil {
			return fmt.Errorf("write edit of the policy: %w", redisconn.Classify(err))
		}
		return nil
	}
	err := send(func(pipe redis.Pipeliner) {
		pipe.Del(ctx, keys...)
		pipe.HSet(ctx, keys[0], fields...)
	})
	for at := 0; err == nil && at < len(moves); at += stageBatch {
		err = send(func(pipe redis.Pipeliner) {
			pipe.RPush(ctx, keys[1], moves[at:min(len(moves), at+stageBatch)]...)
			if at < len(undo) {
				pipe.RPush(ctx, keys[2], undo[at:min(len(undo), at+stageBatch)]...)
			}
		})
	}
	return err
}

// fillField is of an edit in steps for how many milliseconds buckets are to be kept behind it; absent where none has to be.
const fillField = "fill"

// finishOthers is finishEdit, whoever began it, with what that one does for buckets then: its process may have died.
func (s *Policies) finishOthers(ctx context.Context) error {
	client := redisconn.Client(s.conn)
	name, err := client.HGet(ctx, s.conn.Partition.State(), "pg").Result()
	if redisconn.IsNil(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("read policy: %w", redisconn.Unread(err))
	}
	fill, err := client.HGet(ctx, s.conn.Partition.Base()+"edit:"+name, fillField).Result()
	if err != nil && !redisconn.IsNil(err) {
		return fmt.Errorf("read policy: %w", redisconn.Unread(err))
	}
	if err := s.finishEdit(ctx); err != nil || fill == "" {
		return err
	}
	return s.keepBuckets(ctx, time.Duration(redisconn.Whole(fill))*time.Millisecond)
}

// finishEdit does what is left of an edit that is stored in steps, whoever began it.
func (s *Policies) finishEdit(ctx context.Context) error {
	under, err := redisconn.Client(s.conn).HExists(ctx, s.conn.Partition.State(), "pg").Result()
	if err != nil {
		return fmt.Errorf("read policy: %w", redisconn.Unread(err))
	}
	for under {
		reply, err := s.conn.Run(ctx, "step", s.conn.Now)
		if err != nil {
			return err
		}
		under = reply[0] != "over"
	}
	return nil
}
