package store

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/internal/redisconn"
)

// The places of a job beside those of a Verdict.
const (
	// PlaceRunning is a worker's hands.
	PlaceRunning admission.Place = "running"
	// PlaceDead is among the dead letters.
	PlaceDead admission.Place = "dead"
	// PlaceEnded is out: the id alone is remembered, for the dedup window.
	PlaceEnded admission.Place = "ended"
	// PlaceUnknown is that of a record which stands in no place. It is a fault: law L4 says that there is none.
	PlaceUnknown admission.Place = "unknown"
)

// Sighting is where a job is and why it is there. Times are by the clock of Redis.
type Sighting struct {
	Key   admission.Key
	Place admission.Place
	// Record is the job as stored. A Large payload is left out: PayloadBytes is its length.
	Record       Record
	PayloadBytes int64
	// Position is that in its lane or its overflow store, from 1, when waiting or spilled; 0 elsewhere.
	Position int
	// EstimatedWait is a guess of the time until a waiting job starts, as in a Verdict; negative when there is none.
	EstimatedWait time.Duration
	// Waits says what the job waits for, the most certain to hold it back first.
	Waits []Wait
	// At is when it is due (later; spilled, if it has a time of its own), or when it died (dead).
	At time.Time
	// Pool is the id of the workers' pool, when ready or running.
	Pool string
	// Worker, Token and Since tell who holds a running job, by which lease, and since when.
	Worker, Token string
	Since         time.Time
	// Cancelled is set when a running job is to end by its worker's next heartbeat; Reason says why.
	Cancelled bool
	// Reason and Text say why a dead letter died, or why a running job was cancelled.
	Reason, Text string
	// History is what became of its deliveries that did not complete it, the oldest first, at most 20.
	History []Delivery
}

// Delivery is one line of a job's history.
type Delivery struct {
	// Outcome is failed, released or lost.
	Outcome string
	// At is when it ended, Ran how long the handler ran; zero where nobody knows.
	At  time.Time
	Ran time.Duration
	// Worker held the job; Text is the error.
	Worker, Text string
}

// Look tells where a job is and what it waits for. A job that nobody knows, or that ended before the dedup window, is
// headgate.ErrUnknownJob; one that ended within it is a Sighting with PlaceEnded. The place, the history and the gates
// are of one instant; the names of classes and pools, and why a breaker is open, are read just after it.
func (s *Store) Look(ctx context.Context, key admission.Key) (Sighting, error) {
	if err := validateKey(key); err != nil {
		return Sighting{}, err
	}
	s = s.of(key.Tenant)
	reply, err := s.run(ctx, "look", s.now, encodeKey(key))
	if err != nil {
		return Sighting{}, err
	}
	if len(reply) < 2 {
		return Sighting{}, fmt.Errorf("look at %s: %w", key, redisconn.ErrUnknownReply)
	}
	sight := Sighting{Key: key, Place: admission.Place(reply[0])}
	switch {
	case sight.Place == PlaceEnded:
		return sight, nil
	case sight.Place == PlaceUnknown && reply[1] == "":
		return Sighting{}, fmt.Errorf("look at %s: %w", key, admission.ErrUnknownJob)
	}
	if sight.Record, err = decodeRecord(encodeKey(key), reply[1]); err != nil {
		return Sighting{}, err
	}
	facts, err := sight.read(reply[2:])
	if err != nil {
		return Sighting{}, fmt.Errorf("look at %s: %w", key, err)
	}
	around, err := s.readSurroundings(ctx, &sight)
	if err != nil {
		return Sighting{}, err
	}
	switch sight.Place {
	case admission.PlaceWaiting, admission.PlaceLater, admission.PlaceReady, admission.PlaceSpilled:
		sight.Waits = waits(&sight, facts, around)
		if facts.mode != "a" || facts.blocked || len(facts.gates) > 0 || len(around.pools) == 0 {
			sight.EstimatedWait = -1 // Until a gate opens, or a worker comes, nobody knows.
		}
	}
	return sight, nil
}

// facts is what the script tells of a waiting job.
type facts struct {
	mode    string // of its tenant in its class: a runnable, b all lanes behind gates, t behind a gate of its own
	blocked bool   // its lane stands behind its downstream's gate
	gates   []GateState
}

// read takes the names and values that follow the record.
func (g *Sighting) read(pairs []string) (facts, error) {
	var f facts
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
			f.mode = value
		case "blocked":
			f.blocked = value == "1"
		case "gate":
			var gate GateState
			label, rest, _ := strings.Cut(value, "|")
			gate, err = parseGate(label, rest, nil)
			f.gates = append(f.gates, gate)
		case "at":
			g.At, err = parseMicros(value)
		case "why":
			g.Reason, g.Text, _ = strings.Cut(value, "|")
		case "pool":
			g.Pool = value
		case "worker":
			g.Worker = value
		case "token":
			g.Token = value
		case "since":
			g.Since, err = parseMicros(value)
		case "log":
			var d Delivery
			d, err = parseDelivery(value)
			g.History = append(g.History, d)
		}
		if err != nil {
			return facts{}, fmt.Errorf("read %s %q: %w", name, value, err)
		}
	}
	return f, nil
}

// parseDelivery reads outcome|time|time it ran|worker|text.
func parseDelivery(line string) (Delivery, error) {
	parts := strings.SplitN(line, "|", 5)
	if len(parts) < 5 {
		return Delivery{}, redisconn.ErrUnknownReply
	}
	at, err := parseMicros(parts[1])
	if err != nil {
		return Delivery{}, err
	}
	ran, err := strconv.ParseInt(parts[2], 10, 64)
	if err != nil {
		return Delivery{}, err
	}
	return Delivery{Outcome: parts[0], At: at, Ran: time.Duration(ran) * time.Microsecond, Worker: parts[3], Text: parts[4]}, nil
}

// parseMicros reads a time in microseconds; 0 is the zero Time.
func parseMicros(text string) (time.Time, error) {
	us, err := strconv.ParseInt(text, 10, 64)
	if err != nil || us == 0 {
		return time.Time{}, err
	}
	return time.UnixMicro(us), nil
}

// validateKey returns a *headgate.FieldError for each part of a key that no job can have.
func validateKey(key admission.Key) error {
	if err := admission.ValidateTenant(key.Tenant); err != nil {
		return err
	}
	return admission.ValidateName("id", key.ID, false)
}

// surroundings is what Look reads beside the script.
type surroundings struct {
	queue queueConfig
	// pools are the ids of those that serve the queue.
	pools []string
	// breaker is that of the job's downstream; the zero state where there is none.
	breaker BreakerState
}

// readSurroundings reads what names the class, the workers and a cancelling, and the length of a large payload.
func (s *Store) readSurroundings(ctx context.Context, sight *Sighting) (surroundings, error) {
	job := &sight.Record.Job
	raw := encodeKey(sight.Key)
	pipe := connection(s).Pipeline()
	state := pipe.HMGet(ctx, s.partition.State(), "t", "bt", "cfg:"+job.Queue, "pools:"+job.Queue)
	gated := pipe.HMGet(ctx, s.partition.Breaker(job.Downstream), "m", "r")
	cancelled := pipe.HGet(ctx, s.partition.Base()+"cancelled", raw)
	large := pipe.StrLen(ctx, s.partition.Large(raw))
	if _, err := pipe.Exec(ctx); err != nil && !redisconn.IsNil(err) {
		return surroundings{}, fmt.Errorf("look at %s: %w", sight.Key, redisconn.Unread(err))
	}
	around := surroundings{queue: parseQueueConfig(redisconn.TextAt(state.Val(), 2)), pools: strings.Fields(redisconn.TextAt(state.Val(), 3))}
	if meta := redisconn.TextAt(gated.Val(), 0); meta != "" {
		_, ahead, err := parseClocks(state.Val())
		if err == nil {
			around.breaker, _, err = parseMeta(meta, ahead)
		}
		if err != nil {
			return surroundings{}, fmt.Errorf("look at %s: read breaker of %s: %w", sight.Key, job.Downstream, err)
		}
		around.breaker.Reason = redisconn.TextAt(gated.Val(), 1)
	}
	job.Priority = around.queue.class(sight.Record.Class)
	sight.PayloadBytes = int64(len(job.Payload))
	if sight.Record.Large {
		sight.PayloadBytes = large.Val()
	}
	if parts := strings.SplitN(cancelled.Val(), "|", 3); sight.Place == PlaceRunning && len(parts) == 3 {
		sight.Cancelled, sight.Reason = true, parts[2]
	}
	return around, nil
}

// Payload returns a job's payload, also a large one. A job that does not live is headgate.ErrUnknownJob.
func (s *Store) Payload(ctx context.Context, key admission.Key) ([]byte, error) {
	if err := validateKey(key); err != nil {
		return nil, err
	}
	s = s.of(key.Tenant)
	raw := encodeKey(key)
	rec, err := connection(s).HGet(ctx, s.partition.Jobs(), raw).Result()
	if redisconn.IsNil(err) {
		return nil, fmt.Errorf("read payload of %s: %w", key, admission.ErrUnknownJob)
	}
	if err != nil {
		return nil, fmt.Errorf("read payload of %s: %w", key, redisconn.Unread(err))
	}
	lease, err := s.lease(ctx, redis.XMessage{Values: map[string]any{"j": raw, "r": rec}})
	if err != nil {
		return nil, err
	}
	return lease.Job.Payload, lease.Err
}
