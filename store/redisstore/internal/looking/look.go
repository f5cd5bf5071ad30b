package looking

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/internal/redisconn"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/redisstore/internal/codec"
)

// Look tells where a job is and what it waits for. A job that nobody knows, or that ended before the dedup window, is
// headgate.ErrUnknownJob; one that ended within it is a Sighting with PlaceEnded. The place, the history and the gates
// are of one instant; the names of classes and pools, and why a breaker is open, are read just after it.
func (s *Looking) Look(ctx context.Context, key admission.Key) (store.Sighting, error) {
	if err := store.ValidateKey(key); err != nil {
		return store.Sighting{}, err
	}
	reply, err := s.conn.Run(ctx, "look", s.conn.Now, store.EncodeKey(key))
	if err != nil {
		return store.Sighting{}, err
	}
	if len(reply) < 2 {
		return store.Sighting{}, fmt.Errorf("look at %s: %w", key, redisconn.ErrUnknownReply)
	}
	sight := store.Sighting{Key: key, Place: admission.Place(reply[0])}
	switch {
	case sight.Place == store.PlaceEnded:
		return sight, nil
	case sight.Place == store.PlaceUnknown && reply[1] == "":
		return store.Sighting{}, fmt.Errorf("look at %s: %w", key, admission.ErrUnknownJob)
	}
	if sight.Record, err = codec.DecodeRecord(store.EncodeKey(key), reply[1]); err != nil {
		return store.Sighting{}, err
	}
	facts, err := readSighting(&sight, reply[2:])
	if err != nil {
		return store.Sighting{}, fmt.Errorf("look at %s: %w", key, err)
	}
	if err := s.readSurroundings(ctx, &sight, &facts); err != nil {
		return store.Sighting{}, err
	}
	sight.AddWaits(facts)
	return sight, nil
}

// readSighting takes the names and values that follow the record.
func readSighting(g *store.Sighting, pairs []string) (store.WaitFacts, error) {
	var f store.WaitFacts
	for i := 0; i+1 < len(pairs); i += 2 {
		name, value := pairs[i], pairs[i+1]
		var err error
		switch name {
		case "position":
			g.Position, err = strconv.Atoi(value)
		case "wait":
			var us int64
			us, err = strconv.ParseInt(value, 10, 64)
			g.EstimatedWait = time.Duration(us) * time.Microsecond
		case "mode":
			f.Tenant = value
		case "blocked":
			f.Blocked = value == "1"
		case "gate":
			var gate store.GateState
			label, rest, _ := strings.Cut(value, "|")
			gate, err = codec.ParseGate(label, rest, nil)
			f.Gates = append(f.Gates, gate)
		case "at":
			g.At, err = codec.ParseMicros(value)
		case "why":
			g.Reason, g.Text, _ = strings.Cut(value, "|")
		case "pool":
			g.Pool = value
		case "worker":
			g.Worker = value
		case "token":
			g.Token = value
		case "since":
			g.Since, err = codec.ParseMicros(value)
		case "log":
			var d store.Delivery
			d, err = parseDelivery(value)
			g.History = append(g.History, d)
		}
		if err != nil {
			return store.WaitFacts{}, fmt.Errorf("read %s %q: %w", name, value, err)
		}
	}
	return f, nil
}

// parseDelivery reads outcome|time|time it ran|worker|text.
func parseDelivery(line string) (store.Delivery, error) {
	parts := strings.SplitN(line, "|", 5)
	if len(parts) < 5 {
		return store.Delivery{}, redisconn.ErrUnknownReply
	}
	at, err := codec.ParseMicros(parts[1])
	if err != nil {
		return store.Delivery{}, err
	}
	ran, err := strconv.ParseInt(parts[2], 10, 64)
	if err != nil {
		return store.Delivery{}, err
	}
	return store.Delivery{Outcome: parts[0], At: at, Ran: time.Duration(ran) * time.Microsecond, Worker: parts[3], Text: parts[4]}, nil
}

// readSurroundings reads what names the class, the workers and a cancelling, and the length of a large payload.
func (s *Looking) readSurroundings(ctx context.Context, sight *store.Sighting, facts *store.WaitFacts) error {
	job := &sight.Record.Job
	raw := store.EncodeKey(sight.Key)
	pipe := redisconn.Client(s.conn).Pipeline()
	state := redisconn.ReadState(ctx, pipe, s.conn.Partition, "t", "bt", "cfg:"+job.Queue, "pools:"+job.Queue, "cfg:*")
	service, _ := admission.ServiceOf(job.Downstream)
	gated := pipe.HMGet(ctx, s.conn.Partition.Breaker(service), "m", "r")
	cancelled := pipe.HGet(ctx, s.conn.Partition.Base()+"cancelled", raw)
	large := pipe.StrLen(ctx, s.conn.Partition.Large(raw))
	if _, err := pipe.Exec(ctx); err != nil && !redisconn.IsNil(err) {
		return fmt.Errorf("look at %s: %w", sight.Key, redisconn.Unread(err))
	}
	queue := parseQueueConfig(redisconn.TextAt(state.Val(), 2), redisconn.TextAt(state.Val(), 4))
	facts.Pools = strings.Fields(redisconn.TextAt(state.Val(), 3))
	if meta := redisconn.TextAt(gated.Val(), 0); meta != "" {
		_, ahead, err := codec.ParseClocks(state.Val())
		if err == nil {
			facts.Breaker, _, err = codec.ParseMeta(meta, ahead)
		}
		if err != nil {
			return fmt.Errorf("look at %s: read breaker of %s: %w", sight.Key, job.Downstream, err)
		}
		facts.Breaker.Reason = redisconn.TextAt(gated.Val(), 1)
	}
	job.Priority = store.ClassName(queue.classes, sight.Record.Class)
	sight.PayloadBytes = int64(len(job.Payload))
	if sight.Record.Large {
		sight.PayloadBytes = large.Val()
	}
	if parts := strings.SplitN(cancelled.Val(), "|", 3); sight.Place == store.PlaceRunning && len(parts) == 3 {
		sight.Cancelled, sight.Reason = true, parts[2]
	}
	return nil
}
