package breakers

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/breaker"
	"github.com/headgate/headgate/internal/redisconn"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/redisstore/internal/codec"
)

// ReportOutcomes counts what a worker's calls of downstreams came to, up to MaxReports, and returns the state of each
// one's breaker after that. Sent again after a lost reply, a report counts once, unless its number is 0. more means that
// work is left for Promote.
func (s *Fleet) ReportOutcomes(ctx context.Context, from store.Reporter, reports []store.Outcomes) (words []store.BreakerWord, more bool, err error) {
	if len(reports) > store.MaxReports {
		return nil, false, &admission.FieldError{Field: "reports", Value: strconv.Itoa(len(reports)), Allowed: "up to 64 in a call"}
	}
	kinds := map[string]int{}
	var rules, tuples []any
	for i := range reports {
		r := &reports[i]
		text := fmt.Sprintf("%d %d %s", r.Origin, r.Version, rulesText(r.Config))
		if kinds[text] == 0 {
			rules = append(rules, text)
			kinds[text] = len(rules)
		}
		tuples = append(tuples, r.Downstream, kinds[text], r.Sequence, r.Period, r.Successes, r.Failures, r.Slow, r.SlowEnds, r.Streak,
			ranText(r), tenantsText(r.Tenants), errorsText(r.Errors))
	}
	guest := 0
	if from.Guest {
		guest = 1
	}
	args := append([]any{s.conn.Now, from.Name, guest, len(rules)}, rules...)
	reply, err := s.conn.Run(ctx, "breaker", append(args, tuples...)...)
	if err != nil {
		return nil, false, err
	}
	if len(reply) != 2+reportWords*len(reports) {
		return nil, false, fmt.Errorf("report outcomes: reply has %d words", len(reply))
	}
	words = make([]store.BreakerWord, len(reports))
	for i := range words {
		own := reply[2+reportWords*i : 2+reportWords*(i+1)]
		if words[i], err = parseWord(own); err != nil {
			return nil, false, fmt.Errorf("report outcomes: %w", err)
		}
		words[i].Differs, words[i].Policy = own[4] == "differs", redisconn.Whole(reply[1])
		if words[i].Aside, err = parseTenants(own[3]); err != nil {
			return nil, false, fmt.Errorf("report outcomes: %w", err)
		}
	}
	return words, reply[0] == "more", nil
}

// ranText is how long the calls ran, and if there is something of that to tell how many others were refused and how the downstream pushed back.
func ranText(r *store.Outcomes) any {
	ran := max(r.Ran, 0).Microseconds()
	if r.Refused == 0 && r.Push == 0 {
		return ran
	}
	return fmt.Sprintf("%d %d %d %d", ran, r.Refused, r.Push, max(r.PushFor, 0).Microseconds())
}

// reportWords is how many words of the reply are about one report.
const reportWords = 5

// tenantsText is what each tenant has of a report as the script has it.
func tenantsText(parts []breaker.TenantCounts) string {
	var text []byte
	for i := range parts {
		p := &parts[i]
		for j, n := range [...]uint64{uint64(p.Tenant), p.Successes, p.Failures, p.Slow, p.SlowEnds, p.Streak} {
			if j > 0 {
				text = append(text, ',')
			}
			text = strconv.AppendUint(text, n, 10)
		}
		text = append(text, ';')
	}
	return string(text)
}

// errorsText is errors as the script has them: a line each, clipped.
func errorsText(all []store.CallError) string {
	var text strings.Builder
	for i, e := range all {
		if i == store.MaxCallErrors {
			break
		}
		fmt.Fprintf(&text, "%d\t%s\n", max(e.Count, 1), store.ErrorText(e.Text))
	}
	return text.String()
}

func parseTenants(text string) (numbers []uint16, err error) {
	if text == "" {
		return nil, nil
	}
	for part := range strings.SplitSeq(text, ",") {
		n, err := strconv.ParseUint(part, 10, 16)
		if err != nil {
			return nil, redisconn.ErrUnknownReply
		}
		numbers = append(numbers, uint16(n))
	}
	return numbers, nil
}

func parseWord(reply []string) (store.BreakerWord, error) {
	if reply[0] == "full" {
		return store.BreakerWord{For: -1, Full: true}, nil
	}
	word, forced := reply[0], reply[0] == "forced"
	if forced {
		word = breaker.Closed.String()
	}
	state, err := parseState(word)
	if err != nil {
		return store.BreakerWord{}, err
	}
	numbers, err := codec.ParseNumbers(reply[1] + " " + reply[2])
	if err == nil && len(numbers) != 2 {
		err = redisconn.ErrUnknownReply
	}
	if err != nil {
		return store.BreakerWord{}, err
	}
	return store.BreakerWord{State: state, Period: uint64(numbers[0]), For: time.Duration(numbers[1]) * time.Microsecond, Forced: forced}, nil
}

var breakerStates = map[string]breaker.State{
	breaker.Closed.String(): breaker.Closed, breaker.Open.String(): breaker.Open, breaker.HalfOpen.String(): breaker.HalfOpen,
}

func parseState(text string) (breaker.State, error) {
	state, ok := breakerStates[text]
	if !ok {
		return 0, fmt.Errorf("unknown state %q of a breaker", text)
	}
	return state, nil
}

// rulesText is a config as the scripts have it. What a slow call is, each worker says for its own.
func rulesText(c breaker.Config) string {
	ratio := func(r breaker.Ratio) string { return strconv.FormatFloat(float64(r), 'g', 17, 64) }
	return fmt.Sprintf("%s|%d|%d|%s|%d|%s|%d|%d|%s|%s|%s|%s", codec.Micros(c.Window), c.Buckets, c.MinCalls, ratio(c.FailureRate),
		c.FailureThreshold, ratio(c.SlowCallRate), c.SuccessThreshold, c.MaxProbes, codec.Micros(c.ProbeTimeout), codec.Micros(c.OpenBase),
		codec.Micros(c.OpenMax), codec.Micros(c.ResetAfter))
}
