package store

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/internal/redisconn"
)

// Grant is one call for the callers of a limiter.
type Grant struct {
	// Version is that of the policy from which the limits come.
	Version int64
	// Member is the limiter's name, unique among those that live: 1-128 bytes.
	Member string
	// Lease is how long what is leased may be spent, counted from before the call.
	Lease time.Duration
	// Beat is for how long the limiter counts as live; zero leaves that as it is, below zero forgets the limiter.
	Beat time.Duration
	// Questions are asked one after the other, each granted or refused by itself, at most MaxBatchJobs. One of no cost asks
	// nothing and serves Accounts alone. The global limit must be the same for all.
	Questions []Question
	// Accounts are the leases that change, each scope once.
	Accounts []Account
}

// Account is what changes in the lease of one scope. Amounts are whole tokens, zero or more.
type Account struct {
	// Question is the index of one on whose way the scope is, at Level.
	Question int
	Level    admission.Level
	// Want is what is asked for beside the Held tokens that are still there. Cap is what all holders together may hold.
	Want, Held, Cap admission.Tokens
	// Back ends the lease and gives back as much, if the lease has not ended by itself.
	Back admission.Tokens
	// Owed is to be taken out of the bucket as far as it reaches, for work that was admitted while Redis was away.
	Owed admission.Tokens
}

// Granted is the answer to a Grant.
type Granted struct {
	// Members is how many limiters live; it is known after a Beat, else below zero.
	Members int
	// Verdicts answer the questions that cost something, in order.
	Verdicts []admission.Verdict
	// Leases answer the accounts, in order.
	Leases []Leased
}

// Leased is what became of an Account.
type Leased struct {
	// Tokens are leased anew. Paid is how much of what is owed was taken.
	Tokens, Paid admission.Tokens
	// Holders is how many limiters hold tokens of the scope, this one included; zero where nothing was wanted.
	Holders int
}

// Grant makes one call. Where another version is in force nothing is done and the error is ErrStale. After an error InDoubt
// tokens may be gone. A Redis that is full is headgate.ErrOutOfMemory.
func (s *Store) Grant(ctx context.Context, g *Grant) (Granted, error) {
	reply, err := s.run(ctx, "grant", s.grantArgs(g)...)
	switch {
	case err != nil && redis.HasErrorPrefix(errors.Unwrap(err), "OOM"):
		return Granted{}, errors.Join(admission.ErrOutOfMemory, err)
	case err != nil:
		return Granted{}, err
	case len(reply) > 0 && reply[0] == "stale":
		return Granted{}, ErrStale
	}
	return parseGranted(reply, g)
}

func (s *Store) grantArgs(g *Grant) []any {
	args := append(make([]any, 0, 11+limitsSize+(pathSize+2)*len(g.Questions)+8*len(g.Accounts)), s.now, g.Version, s.config.BucketCap)
	args = s.appendGlobal(args, &g.Questions[0].Limits[admission.LevelGlobal])
	beat := ""
	if g.Beat != 0 {
		beat = micros(max(0, g.Beat))
	}
	asked := 0
	for i := range g.Questions {
		if g.Questions[i].Cost > 0 {
			asked++
		}
	}
	args = append(args, g.Member, micros(g.Lease), beat, asked, len(g.Questions))
	args = appendQuestions(args, g.Questions)
	for i := range g.Questions {
		if cost := g.Questions[i].Cost; cost > 0 {
			args = append(args, i+1, int64(cost))
		}
	}
	for i := range g.Accounts {
		a := &g.Accounts[i]
		q := &g.Questions[a.Question]
		scope := string(admission.ScopeAt(a.Level, q.Tenant, q.Queue, q.Class))
		args = append(args, a.Question+1, int(a.Level), scope, int64(a.Want), int64(a.Held), int64(a.Cap), int64(a.Back), int64(a.Owed))
	}
	return args
}

func parseGranted(reply []string, g *Grant) (Granted, error) {
	if len(reply) < 2+len(g.Accounts) {
		return Granted{}, fmt.Errorf("grant: reply has %d lines: %w", len(reply), redisconn.ErrUnknownReply)
	}
	members, err := strconv.Atoi(reply[1])
	if err != nil {
		return Granted{}, fmt.Errorf("read live limiters %q: %w", reply[1], err)
	}
	granted := Granted{Members: members, Verdicts: make([]admission.Verdict, 0, len(g.Questions)), Leases: make([]Leased, len(g.Accounts))}
	lines := reply[2:]
	for i := range g.Questions {
		q := &g.Questions[i]
		if q.Cost == 0 {
			continue
		}
		if len(lines) <= len(g.Accounts) {
			return Granted{}, fmt.Errorf("grant: reply has %d lines: %w", len(reply), redisconn.ErrUnknownReply)
		}
		verdict := admission.Verdict{Decision: admission.Admitted}
		if lines[0] != "" {
			if verdict, err = parseVerdict(lines[0], &admission.Job{Tenant: q.Tenant, Queue: q.Queue, Priority: q.Class}); err != nil {
				return Granted{}, err
			}
		}
		granted.Verdicts, lines = append(granted.Verdicts, verdict), lines[1:]
	}
	for i := range granted.Leases {
		numbers, err := parseNumbers(lines[i])
		if err != nil || len(numbers) != 3 {
			return Granted{}, fmt.Errorf("read lease %q: %w", lines[i], errors.Join(err, redisconn.ErrUnknownReply))
		}
		granted.Leases[i] = Leased{Tokens: admission.Tokens(numbers[0]), Paid: admission.Tokens(numbers[1]), Holders: int(numbers[2])}
	}
	return granted, nil
}
