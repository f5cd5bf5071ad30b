package redisstore

import (
	"context"
	"strconv"

	"github.com/headgate/headgate/store"
)

// SetGate sets, changes or removes a gate and wakes who may pass. more means that work is left for Promote. A limit that the policy
// has for the gate, or comes to have, overrules it at the next edit.
func (s *Partition) SetGate(ctx context.Context, g store.Gate) (held int, more bool, err error) {
	_, held, more, err = s.gate(ctx, g, store.AuditGate, limitText(g.Limit))
	return held, more, err
}

// gate calls the script with a limit or a verb, in all partitions that the gate is about. was is false for a resume of what is not
// paused.
func (s *Partition) gate(ctx context.Context, g store.Gate, action, limit string) (was bool, held int, more bool, err error) {
	if err := g.By.Validate(); err != nil {
		return false, 0, false, err
	}
	reply, err := s.runFor(ctx, 2, "gate", s.now, string(g.Name), limit, micros(g.For), limitText(g.Then), interventionText(g.By, action))
	if err != nil {
		return false, 0, false, err
	}
	held, err = strconv.Atoi(reply[1])
	return reply[0] != "none", held, reply[0] == "more", err
}

func limitText(limit int) string {
	if limit < 0 {
		return ""
	}
	return strconv.Itoa(limit)
}
