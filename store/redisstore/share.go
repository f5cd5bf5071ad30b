package redisstore

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/headgate/headgate/internal/redisconn"
	"github.com/headgate/headgate/store"
)

// portion is what a partition has and uses of a bound that all divide among them.
type portion struct {
	// known says that there is such a bound here. whole is how many units it has over all partitions, 0 where the policy has
	// it no more.
	known bool
	whole int
	// units of how many are this partition's, and limit how many are in force.
	units, of, limit int
	// used is how many units are in use. Of a rate that is all or none: none while its bucket is full.
	used int
	// wanted says, where more is wanted, who wants it.
	wanted store.QueueDemand
}

// have returns the partition's share in whole units.
func (p *portion) have() int { return int(int64(p.whole) * int64(p.units) / int64(p.of)) }

// inForce returns what counts against the whole: jobs above a cap that was lowered run on.
func (p *portion) inForce(rate bool) int {
	if rate {
		return p.limit
	}
	return max(p.limit, p.used)
}

// setting is a share that a partition is to have of a bound; of is 0 where it is only looked at.
type setting struct {
	bound     string
	units, of int
}

// errTaken means that another process has begun to balance shares. Nothing was done.
var errTaken = errors.New("another ballot is under way")

// share sets a partition's shares under a ballot and returns what it has then. taken is the number of a ballot that is in the way.
func (s *Partition) share(ctx context.Context, number int64, owner string, settings []setting) (portions []portion, taken int64, err error) {
	args := append(make([]any, 0, 4+3*len(settings)), s.now, number, owner, s.parts)
	for _, set := range settings {
		units := ""
		if set.of > 0 {
			units = strconv.Itoa(set.units)
		}
		args = append(args, set.bound, units, set.of)
	}
	reply, err := s.run(ctx, "share", args...)
	if err != nil {
		return nil, 0, err
	}
	if reply[0] == "taken" {
		return nil, redisconn.Whole(reply[1]), errTaken
	}
	if len(reply) != len(settings)+1 {
		return nil, 0, fmt.Errorf("share bounds: reply has %d lines", len(reply))
	}
	portions = make([]portion, len(settings))
	for i, line := range reply[1:] {
		if portions[i], err = parsePortion(line, ofRate(settings[i].bound)); err != nil {
			return nil, 0, fmt.Errorf("share %s: %w", settings[i].bound, err)
		}
	}
	return portions, 0, nil
}

// ofRate reports whether a bound is a rate, whose units are parts of it.
func ofRate(bound string) bool {
	kind, _ := store.GateName(bound).Split()
	return bound == store.GlobalBound || kind == store.KindDownstreamRate
}

// parsePortion reads a line that the script share describes.
func parsePortion(line string, rate bool) (portion, error) {
	if line == "-" {
		return portion{}, nil
	}
	fields := strings.Fields(line)
	if len(fields) < 5 {
		return portion{}, redisconn.ErrUnknownReply
	}
	n, err := parseNumbers(strings.Join(fields[:5], " "))
	if err != nil {
		return portion{}, err
	}
	p := portion{known: true, whole: int(n[0]), units: int(n[1]), of: int(n[2]), limit: int(n[3]), used: int(n[4])}
	if p.of <= 0 {
		return portion{}, redisconn.ErrUnknownReply
	}
	if rate && p.used > 0 {
		p.used = p.have()
	}
	if len(fields) > 5 {
		p.wanted, err = parseQueueDemand(fields[5:])
	}
	return p, err
}

// pending is what the script unbalanced found.
type pending struct {
	// names is a page of the bounds whose shares are to be looked at, next where the following one begins.
	names []string
	next  string
	// since is how long ago shares were looked at, negative where they never were, and owner by whose ballot.
	since time.Duration
	owner string
}

func (s *Partition) unbalanced(ctx context.Context, cursor string) (pending, error) {
	reply, err := s.run(ctx, "unbalanced", s.now, cursor)
	if err != nil {
		return pending{}, err
	}
	if len(reply) < 3 {
		return pending{}, fmt.Errorf("find unbalanced shares: reply has %d lines", len(reply))
	}
	return pending{names: reply[3:], next: reply[0], since: time.Duration(redisconn.Whole(reply[1])) * time.Microsecond, owner: reply[2]}, nil
}
