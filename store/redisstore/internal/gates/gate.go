package gates

import (
	"context"
	"strconv"
	"time"

	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/redisstore/internal/codec"
)

// SetGate sets, changes or removes a gate and wakes who may pass. more means that work is left for Promote. A limit that the policy
// has for the gate, or comes to have, overrules it at the next edit.
func (s *Bounds) SetGate(ctx context.Context, g store.Gate) (held int, more bool, err error) {
	_, held, more, err = s.gate(ctx, g, store.AuditGate, limitText(g.Limit))
	return held, more, err
}

// gate calls the script with a limit or a verb, in all partitions that the gate is about. was is false for a resume of what is not
// paused, and a hold of what is.
func (s *Bounds) gate(ctx context.Context, g store.Gate, action, limit string) (was bool, held int, more bool, err error) {
	if err := g.By.Validate(); err != nil {
		return false, 0, false, err
	}
	reply, err := s.conn.RunFor(ctx, 2, "gate", s.conn.Now, string(g.Name), limit, codec.Micros(g.For), limitText(g.Then), codec.InterventionText(g.By, action))
	if err != nil {
		return false, 0, false, err
	}
	held, err = strconv.Atoi(reply[1])
	return reply[0] != "none" && reply[0] != "kept", held, reply[0] == "more", err
}

func limitText(limit int) string {
	if limit < 0 {
		return ""
	}
	return strconv.Itoa(limit)
}

// Pause keeps jobs under a gate from the workers, for a duration from 1 ms; zero means until Unpause. Those that run go on: held
// is how many do. A cap that the gate has is kept, follows the policy meanwhile, and comes back with the end of the pause.
func (s *Bounds) Pause(ctx context.Context, name store.GateName, duration time.Duration, by store.Intervention) (held int, err error) {
	if err := name.CheckCap(); err != nil {
		return 0, err
	}
	_, held, _, err = s.gate(ctx, store.Gate{Name: name, For: duration, By: by}, store.AuditPause, "pause")
	return held, err
}

// PauseAtLeast is Pause, as store.Gates.PauseAtLeast.
func (s *Bounds) PauseAtLeast(ctx context.Context, name store.GateName, duration time.Duration, by store.Intervention) (did bool, err error) {
	if err := name.CheckCap(); err != nil {
		return false, err
	}
	did, _, _, err = s.gate(ctx, store.Gate{Name: name, For: duration, By: by}, store.AuditPause, "hold")
	return did, err
}

// Unpause ends what Pause began; was is false where nothing was paused.
func (s *Bounds) Unpause(ctx context.Context, name store.GateName, by store.Intervention) (was bool, err error) {
	if err := name.CheckCap(); err != nil {
		return false, err
	}
	was, _, _, err = s.gate(ctx, store.Gate{Name: name, By: by}, store.AuditUnpause, "resume")
	return was, err
}
