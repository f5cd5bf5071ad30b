package second

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/google/uuid"

	"github.com/headgate/headgate/internal/redisconn"
	"github.com/headgate/headgate/store"
)

// Mover implements store.Mover.
type Mover struct {
	first  *redisconn.Conn
	second *Redis
	// owner names it, name is what the deployment is called in the second Redis if it has no name yet.
	owner, name string
	// checked says that the second Redis was found fit, fresh that what was sent last is in doubt.
	checked, fresh bool
	// trouble is the word for why the last call moved nothing.
	trouble, cursor string
	// gone are the names of copies that the second Redis has no more, which the first is to hear of.
	gone []string
}

// moverLease is for how long a mover has the right to move: as long as a portion may take, time-outs included.
const moverLease = 5 * time.Second

// NewMover returns the Mover of a partition.
func NewMover(first *redisconn.Conn, second *Redis, owner string) *Mover {
	return &Mover{first: first, second: second, owner: owner, name: uuid.NewString(), fresh: true, cursor: "0"}
}

// plan is what is to be moved.
type plan struct {
	mandate
	held  time.Duration
	away  int64
	drops []string
	out   []body
	back  []string
}

// body is a copy that is to be written.
type body struct {
	name, record string
	large        bool
}

// Move implements store.Mover.
func (m *Mover) Move(ctx context.Context) (store.Moves, error) {
	trouble := m.reach(ctx)
	if trouble != nil {
		m.doubt(trouble)
	}
	p, err := m.plan(ctx, trouble == nil)
	if err != nil {
		m.fresh = true
		return store.Moves{}, err
	}
	if p.held > 0 || trouble != nil {
		return store.Moves{Held: p.held, Trouble: trouble}, nil //nolint:nilerr // It is told as Trouble.
	}
	done, err := m.carry(ctx, p)
	if err == nil {
		m.trouble = ""
		done.More = done.Out+done.Back+done.Dropped+done.Missing > 0 || m.cursor != "0"
		return done, nil
	}
	m.doubt(err)
	if errors.Is(err, errStale) {
		return done, nil
	}
	if _, other := errors.AsType[*troubleError](err); other {
		done.Trouble, err = err, nil
	}
	return done, err
}

// doubt notes that something went wrong: what was sent may still arrive, so the next portion is under another number.
func (m *Mover) doubt(err error) {
	m.fresh, m.gone = true, nil
	if t, other := errors.AsType[*troubleError](err); other {
		m.trouble = t.word
	}
}

// reach finds out whether the second Redis answers, and once whether it is fit.
func (m *Mover) reach(ctx context.Context) error {
	client := clientOf(m.second)
	if m.checked {
		return troubled(client.Ping(ctx).Err())
	}
	if err := redisconn.CheckRedis(ctx, client); err != nil {
		return troubled(err)
	}
	m.checked = true
	return nil
}

// plan asks the first Redis what is to be moved.
func (m *Mover) plan(ctx context.Context, ready bool) (plan, error) {
	args := []any{m.first.Now, m.owner, moverLease.Microseconds(), flag(m.fresh), m.name, flag(ready), m.trouble, m.cursor}
	for _, name := range m.gone {
		args = append(args, name)
	}
	reply, err := m.first.Run(ctx, "movable", args...)
	if err != nil {
		return plan{}, err
	}
	p, cursor, err := parsePlan(reply)
	if err != nil {
		return plan{}, fmt.Errorf("read what is to be moved: %w", err)
	}
	if p.held == 0 {
		m.fresh, m.gone, m.cursor = false, nil, cursor
	}
	return p, nil
}

func flag(set bool) string {
	if set {
		return "1"
	}
	return ""
}

// parsePlan reads the reply of movable.
func parsePlan(reply []string) (p plan, cursor string, err error) {
	r := reader{rest: reply}
	if word := r.text(); word == "held" {
		return plan{held: time.Duration(r.number()) * time.Microsecond}, "", r.err
	} else if word != "movable" {
		return plan{}, "", redisconn.ErrUnknownReply
	}
	p.number, p.deployment, p.away, cursor = r.text(), r.text(), r.number(), r.text()
	for range r.number() {
		p.drops = append(p.drops, r.text())
	}
	for range r.number() {
		p.out = append(p.out, body{name: r.text(), record: r.text(), large: r.text() == "1"})
	}
	for range r.number() {
		p.back = append(p.back, r.text())
	}
	return p, cursor, r.err
}

// reader takes a reply apart. A text that is missing is an error, which stays.
type reader struct {
	rest []string
	err  error
}

func (r *reader) text() string {
	if len(r.rest) == 0 {
		r.err = redisconn.ErrUnknownReply
		return ""
	}
	text := r.rest[0]
	r.rest = r.rest[1:]
	return text
}

func (r *reader) number() int64 {
	text := r.text()
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		r.err = errors.Join(redisconn.ErrUnknownReply, err)
	}
	return n
}

// carry does what a plan says.
func (m *Mover) carry(ctx context.Context, p plan) (done store.Moves, err error) {
	if err := m.second.claim(ctx, m.first.Partition, p.mandate, p.away); err != nil {
		return done, err
	}
	if len(p.drops) > 0 {
		if err := m.second.do(ctx, drop, m.first.Partition, p.mandate, anys(p.drops)...); err != nil {
			return done, err
		}
		m.gone, done.Dropped = p.drops, len(p.drops)
	}
	if done.Out, err = m.out(ctx, p); err != nil {
		return done, err
	}
	done.Back, done.Missing, err = m.back(ctx, p)
	return done, err
}

func anys(texts []string) []any {
	all := make([]any, len(texts))
	for i, text := range texts {
		all[i] = text
	}
	return all
}

// out writes copies, and lets the first Redis let go of those bodies.
func (m *Mover) out(ctx context.Context, p plan) (int, error) {
	var copies, names []any
	for _, b := range p.out {
		payload := ""
		if b.large {
			text, err := redisconn.Client(m.first).Get(ctx, m.first.Partition.Large(keyOf(b.name))).Result()
			if redisconn.IsNil(err) {
				continue // The job has left.
			}
			if err != nil {
				return 0, fmt.Errorf("read payload: %w", redisconn.Unread(err))
			}
			payload = text
		}
		copies, names = append(copies, b.name, b.record, payload), append(names, b.name)
	}
	if len(names) == 0 {
		return 0, nil
	}
	if err := m.second.do(ctx, put, m.first.Partition, p.mandate, copies...); err != nil {
		return 0, err
	}
	reply, err := m.run(ctx, "moved", append([]any{m.first.Now, p.number}, names...))
	return int(reply[0]), err
}

// back reads copies, and gives the first Redis their bodies. Their names stand among those that are to be dropped from then on.
func (m *Mover) back(ctx context.Context, p plan) (back, missing int, err error) {
	for at := 0; at < len(p.back); {
		records, payloads, err := m.second.read(ctx, m.first.Partition, p.back[at:min(at+readAtOnce, len(p.back))]...)
		if err != nil {
			return back, missing, err
		}
		args := []any{m.first.Now, p.number}
		for i := range records {
			args = append(args, p.back[at+i], redisconn.TextAt(records, i), redisconn.TextAt(payloads, i))
		}
		reply, err := m.run(ctx, "brought", args)
		back, missing = back+int(reply[0]), missing+int(reply[1])
		if err != nil {
			return back, missing, err
		}
		at += len(records)
	}
	return back, missing, nil
}

// readAtOnce is how many copies are read by one command: each may have a payload of some size.
const readAtOnce = 8

// run calls a script of the first Redis and returns the numbers of its answer, two at least.
func (m *Mover) run(ctx context.Context, script string, args []any) ([2]int64, error) {
	reply, err := m.first.Run(ctx, script, args...)
	if err != nil {
		return [2]int64{}, err
	}
	r := reader{rest: reply}
	if r.text() == "stale" {
		return [2]int64{}, errStale
	}
	numbers := [2]int64{r.number()}
	if len(r.rest) > 0 {
		numbers[1] = r.number()
	}
	if r.err != nil {
		return [2]int64{}, fmt.Errorf("run %s: %w", script, r.err)
	}
	return numbers, nil
}

// keyOf returns the key of the job whose copy has a name.
func keyOf(name string) string {
	for i := range len(name) {
		if name[i] == ' ' {
			return name[i+1:]
		}
	}
	return ""
}
