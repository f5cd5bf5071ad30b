package limits

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"

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
	beat := ""
	if g.Beat != 0 {
		if beat = codec.Micros(max(0, g.Beat)); g.Edited != 0 {
			beat += " " + strconv.FormatInt(g.Edited, 10)
		}
	}
	args = append(args, beat, tellings(g), codec.PackQuestions(g.Questions, 1))
	args = codec.AppendQuestions(args, s.conn, g.Questions)
	for i := range g.Accounts {
		a := &g.Accounts[i]
		if a.Stock {
			continue
		}
		q := &g.Questions[a.Question]
		scope := string(admission.ScopeAt(a.Level, q.Tenant, q.Queue, q.Class))
		args = append(args, a.Question+1, int(a.Level), scope, int64(a.Want), int64(a.Held), int64(a.Cap), int64(a.Back), int64(a.Owed))
	}
	return args
}

// tellings is what grants are to say, and what is asked for as stock.
func tellings(g *store.Grant) string {
	told := []byte("0")
	if g.Left {
		told[0] = '1'
	}
	for i := range g.Accounts {
		if a := &g.Accounts[i]; a.Stock {
			told = binary.LittleEndian.AppendUint16(told, uint16(a.Question+1)) //nolint:gosec // questions are few
			told = append(told, byte(a.Level))
			for _, tokens := range [...]admission.Tokens{a.Want, a.Held, a.Cap} {
				told = binary.LittleEndian.AppendUint32(told, uint32(max(0, min(math.MaxUint32, tokens)))) //nolint:gosec // just bounded
			}
		}
	}
	if len(told) == 1 && !g.Left {
		return ""
	}
	return string(told)
}

// granting is the verdict on all that are admitted and told no more.
var granting = admission.Verdict{Decision: admission.Admitted}

// parseGranted reads an answer.
func parseGranted(reply []string, g *store.Grant) (store.Granted, error) {
	leases := 0
	for i := range g.Accounts {
		if !g.Accounts[i].Stock {
			leases++
		}
	}
	if len(reply) < 2+leases {
		return store.Granted{}, fmt.Errorf("grant: reply has %d lines: %w", len(reply), redisconn.ErrUnknownReply)
	}
	granted, err := parseBeat(reply[1])
	if err != nil {
		return store.Granted{}, fmt.Errorf("read live limiters %q: %w", reply[1], errors.Join(err, redisconn.ErrUnknownReply))
	}
	granted.Verdicts, granted.Leases = make([]*admission.Verdict, 0, len(g.Questions)), make([]store.Leased, len(g.Accounts))
	lines := reply[2:]
	for i := range g.Questions {
		q := &g.Questions[i]
		if q.Cost == 0 {
			continue
		}
		if len(lines) <= leases {
			return store.Granted{}, fmt.Errorf("grant: reply has %d lines: %w", len(reply), redisconn.ErrUnknownReply)
		}
		verdict := &granting
		if lines[0] != "" {
			told, err := codec.ParseVerdict(lines[0], &admission.Job{Tenant: q.Tenant, Queue: q.Queue, Priority: q.Class})
			if err != nil {
				return store.Granted{}, err
			}
			verdict = &told
		}
		granted.Verdicts, lines = append(granted.Verdicts, verdict), lines[1:]
	}
	return granted, parseLeases(granted.Leases, lines, g, leases)
}

// mostNumbers is how many numbers a beat is told before the names of tenants, and allRenewed stands in the place of these.
const (
	mostNumbers = 3
	allRenewed  = "*"
)

// parseBeat reads what a limiter is told of others, and of limits.
func parseBeat(line string) (granted store.Granted, err error) {
	line, names := cutNames(line)
	beat, err := codec.ParseNumbers(line)
	if err != nil || len(beat) == 0 {
		return granted, errors.Join(err, redisconn.ErrUnknownReply)
	}
	if granted.Members = int(beat[0]); len(beat) > 1 {
		granted.Changed = beat[1]
	}
	if len(beat) == mostNumbers {
		granted.Edited = beat[2]
	}
	if granted.AllRenewed = names == allRenewed; !granted.AllRenewed && names != "" {
		granted.Renewed = strings.Split(names, " ")
	}
	return granted, nil
}

// cutNames divides what stands behind mostNumbers from these.
func cutNames(line string) (numbers, names string) {
	spaces := 0
	for i := range len(line) {
		if line[i] != ' ' {
			continue
		}
		if spaces++; spaces == mostNumbers {
			return line[:i], line[i+1:]
		}
	}
	return line, ""
}

// parseLeases reads a line of each lease, and one of what there is for stock.
func parseLeases(into []store.Leased, lines []string, g *store.Grant, leases int) error {
	var stocks []int64
	if leases < len(into) {
		var err error
		if len(lines) > leases {
			stocks, err = codec.ParseNumbers(lines[leases])
		}
		if err != nil || len(stocks) != len(into)-leases {
			return fmt.Errorf("read stocks %q: %w", lines[leases:], errors.Join(err, redisconn.ErrUnknownReply))
		}
	}
	for i := range into {
		if g.Accounts[i].Stock {
			into[i].Tokens, stocks = admission.Tokens(stocks[0]), stocks[1:]
			continue
		}
		numbers, err := codec.ParseNumbers(lines[0])
		if err != nil || len(numbers) != 3 {
			return fmt.Errorf("read lease %q: %w", lines[0], errors.Join(err, redisconn.ErrUnknownReply))
		}
		into[i] = store.Leased{Tokens: admission.Tokens(numbers[0]), Paid: admission.Tokens(numbers[1]), Holders: int(numbers[2])}
		lines = lines[1:]
	}
	return nil
}
