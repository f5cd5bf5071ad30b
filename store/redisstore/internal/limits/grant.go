package limits

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/internal/redisconn"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/redisstore/internal/codec"
)

// Grant makes one call. Where another version is in force nothing is done and the error is ErrStale. After an error InDoubt
// tokens may be gone. A Redis that is full is headgate.ErrOutOfMemory.
func (s *Limits) Grant(ctx context.Context, g *store.Grant) (store.Granted, error) {
	reply, err := s.conn.Run(ctx, "grant", s.grantArgs(g)...)
	switch {
	case err != nil && redis.HasErrorPrefix(errors.Unwrap(err), "OOM"):
		return store.Granted{}, errors.Join(admission.ErrOutOfMemory, err)
	case err != nil:
		return store.Granted{}, err
	case codec.Stale(reply) != nil:
		return store.Granted{}, codec.Stale(reply)
	}
	return parseGranted(reply, g)
}

func (s *Limits) grantArgs(g *store.Grant) []any {
	args := append(make([]any, 0, 12+codec.PathSize*len(g.Questions)+8*len(g.Accounts)), s.conn.Now, g.Version, g.Member, codec.Micros(g.Lease))
	beat, told := "", ""
	if g.Beat != 0 {
		beat = codec.Micros(max(0, g.Beat))
	}
	if g.Left {
		told = "1"
	}
	args = append(args, beat, told, codec.PackQuestions(g.Questions, 1))
	args = codec.AppendQuestions(args, s.conn, g.Questions)
	for i := range g.Accounts {
		a := &g.Accounts[i]
		q := &g.Questions[a.Question]
		scope := string(admission.ScopeAt(a.Level, q.Tenant, q.Queue, q.Class))
		args = append(args, a.Question+1, int(a.Level), scope, int64(a.Want), int64(a.Held), int64(a.Cap), int64(a.Back), int64(a.Owed))
	}
	return args
}

func parseGranted(reply []string, g *store.Grant) (store.Granted, error) {
	if len(reply) < 2+len(g.Accounts) {
		return store.Granted{}, fmt.Errorf("grant: reply has %d lines: %w", len(reply), redisconn.ErrUnknownReply)
	}
	members, err := strconv.Atoi(reply[1])
	if err != nil {
		return store.Granted{}, fmt.Errorf("read live limiters %q: %w", reply[1], err)
	}
	granted := store.Granted{Members: members, Verdicts: make([]admission.Verdict, 0, len(g.Questions)), Leases: make([]store.Leased, len(g.Accounts))}
	lines := reply[2:]
	for i := range g.Questions {
		q := &g.Questions[i]
		if q.Cost == 0 {
			continue
		}
		if len(lines) <= len(g.Accounts) {
			return store.Granted{}, fmt.Errorf("grant: reply has %d lines: %w", len(reply), redisconn.ErrUnknownReply)
		}
		verdict := admission.Verdict{Decision: admission.Admitted}
		if lines[0] != "" {
			if verdict, err = codec.ParseVerdict(lines[0], &admission.Job{Tenant: q.Tenant, Queue: q.Queue, Priority: q.Class}); err != nil {
				return store.Granted{}, err
			}
		}
		granted.Verdicts, lines = append(granted.Verdicts, verdict), lines[1:]
	}
	for i := range granted.Leases {
		numbers, err := codec.ParseNumbers(lines[i])
		if err != nil || len(numbers) != 3 {
			return store.Granted{}, fmt.Errorf("read lease %q: %w", lines[i], errors.Join(err, redisconn.ErrUnknownReply))
		}
		granted.Leases[i] = store.Leased{Tokens: admission.Tokens(numbers[0]), Paid: admission.Tokens(numbers[1]), Holders: int(numbers[2])}
	}
	return granted, nil
}
