package gates

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/headgate/headgate/internal/redisconn"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/redisstore/internal/codec"
)

// Portion is what a partition has and uses of a bound that all divide among them.
type Portion struct {
	// known says that there is such a bound here. whole is how many units it has over all partitions, 0 where the policy has
	// it no more.
	Known bool
	Whole int
	// units of how many are this partition's, and limit how many are in force.
	Units, Of, Limit int
	// used is how many units are in use. Of a rate that is all or none: none while its bucket is full.
	Used int
	// wanted says, where more is wanted, who wants it.
	Wanted store.QueueDemand
}

// Have returns the partition's share in whole units.
func (p *Portion) Have() int { return int(int64(p.Whole) * int64(p.Units) / int64(p.Of)) }

// InForce returns what counts against the whole: jobs above a cap that was lowered run on.
func (p *Portion) InForce(rate bool) int {
	if rate {
		return p.Limit
	}
	return max(p.Limit, p.Used)
}

// Setting is a share that a partition is to have of a bound; of is 0 where it is only looked at.
type Setting struct {
	Bound     string
	Units, Of int
}

// ErrTaken means that another process has begun to balance shares. Nothing was done.
var ErrTaken = errors.New("another ballot is under way")

// Share sets a partition's shares under a ballot and returns what it has then. taken is the number of a ballot that is in the way.
func (s *Bounds) Share(ctx context.Context, number int64, owner string, settings []Setting) (portions []Portion, taken int64, err error) {
	args := append(make([]any, 0, 4+3*len(settings)), s.conn.Now, number, owner, s.conn.Parts)
	for _, set := range settings {
		units := ""
		if set.Of > 0 {
			units = strconv.Itoa(set.Units)
		}
		args = append(args, set.Bound, units, set.Of)
	}
	reply, err := s.conn.Run(ctx, "share", args...)
	if err != nil {
		return nil, 0, err
	}
	if reply[0] == "taken" {
		return nil, redisconn.Whole(reply[1]), ErrTaken
	}
	if len(reply) != len(settings)+1 {
		return nil, 0, fmt.Errorf("share bounds: reply has %d lines", len(reply))
	}
	portions = make([]Portion, len(settings))
	for i, line := range reply[1:] {
		if portions[i], err = parsePortion(line, OfRate(settings[i].Bound)); err != nil {
			return nil, 0, fmt.Errorf("share %s: %w", settings[i].Bound, err)
		}
	}
	return portions, 0, nil
}

// OfRate reports whether a bound is a rate, whose units are parts of it.
func OfRate(bound string) bool {
	kind, _ := store.GateName(bound).Split()
	return bound == store.GlobalBound || kind == store.KindDownstreamRate
}

// parsePortion reads a line that the script share describes.
func parsePortion(line string, rate bool) (Portion, error) {
	if line == "-" {
		return Portion{}, nil
	}
	fields := strings.Fields(line)
	if len(fields) < 5 {
		return Portion{}, redisconn.ErrUnknownReply
	}
	n, err := codec.ParseNumbers(strings.Join(fields[:5], " "))
	if err != nil {
		return Portion{}, err
	}
	p := Portion{Known: true, Whole: int(n[0]), Units: int(n[1]), Of: int(n[2]), Limit: int(n[3]), Used: int(n[4])}
	if p.Of <= 0 {
		return Portion{}, redisconn.ErrUnknownReply
	}
	if rate && p.Used > 0 {
		p.Used = p.Have()
	}
	if len(fields) > 5 {
		p.Wanted, err = codec.ParseQueueDemand(fields[5:])
	}
	return p, err
}

// Pending is what the script unbalanced found.
type Pending struct {
	// names is a page of the bounds whose shares are to be looked at, next where the following one begins.
	Names []string
	Next  string
	// since is how long ago shares were looked at, negative where they never were, and owner by whose ballot.
	Since time.Duration
	Owner string
}

// Unbalanced returns a page of the bounds whose shares are to be looked at.
func (s *Bounds) Unbalanced(ctx context.Context, cursor string) (Pending, error) {
	reply, err := s.conn.Run(ctx, "unbalanced", s.conn.Now, cursor)
	if err != nil {
		return Pending{}, err
	}
	if len(reply) < 3 {
		return Pending{}, fmt.Errorf("find unbalanced shares: reply has %d lines", len(reply))
	}
	return Pending{Names: reply[3:], Next: reply[0], Since: time.Duration(redisconn.Whole(reply[1])) * time.Microsecond, Owner: reply[2]}, nil
}

// ParseShare reads whole|units|of|partitions (fragments/share.lua); ok is false for a bound that the policy has no more.
func ParseShare(text string) (part float64, ok bool, err error) {
	whole, rest, _ := strings.Cut(text, "|")
	n, err := codec.ParseNumbers(strings.ReplaceAll(rest, "|", " "))
	if err != nil || len(n) != 3 || n[1] <= 0 {
		return 0, false, fmt.Errorf("%q: %w", text, redisconn.ErrUnknownReply)
	}
	return float64(n[0]) / float64(n[1]), whole != "", nil
}
