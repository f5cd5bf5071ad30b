package store

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/breaker"
	"github.com/headgate/headgate/internal/redisconn"
)

// Outcomes is what one worker counted of a downstream since its last report.
type Outcomes struct {
	Downstream string
	// Config is the worker's, defaults filled in. The first worker's is in force, for all, until no worker has reported
	// it for breaker.ConfigHold: so a new one needs nobody to roll it out, and two do not empty each other's window.
	Config breaker.Config
	// Report is what was counted; its Worker and Alone are not used.
	breaker.Report
	// Ran is how long the calls that ended took, together.
	Ran time.Duration
	// Errors are what the failures were, the last of each kind, up to MaxCallErrors.
	Errors []CallError
}

// CallError is one kind of error of a downstream's calls. Two that differ in numbers alone are one kind.
type CallError struct {
	// Text is the last one's, up to MaxErrorText bytes of it.
	Text string
	// Count is how often it came, At when it last did.
	Count int64
	At    time.Time
}

// Bounds of what is kept of errors.
const (
	MaxCallErrors = 5
	MaxErrorText  = 200
)

// BreakerWord is the present state of a fleet's breaker, as far as a worker needs it.
type BreakerWord struct {
	State  breaker.State
	Period uint64
	// For is how long the state lasts if nothing happens, or how long it takes until the vote of a worker counts that is
	// alone in calling; negative if time alone changes nothing.
	For time.Duration
	// Forced says that an operator has closed it: no call is to be refused.
	Forced bool
	// Aside are the numbers of tenants whose calls fail where those of others do not, so that neither the downstream nor
	// the worker is to blame.
	Aside []uint16
	// Differs says that other rules than the worker's are in force.
	Differs bool
	// Policy is the version of the policy in force.
	Policy int64
	// Full means that there is no breaker, because there are too many: the worker is on its own.
	Full bool
}

// Reporter is who counted.
type Reporter struct {
	// Name is one under which sequence numbers grow.
	Name string
	// Guest says that it is no registered worker, so that nobody knows how many others there are like it.
	Guest bool
}

// MaxReports is the largest number of Outcomes in a call.
const MaxReports = 64

// ReportOutcomes counts what a worker's calls of downstreams came to, up to MaxReports, and returns the state of each
// one's breaker after that. Sent again after a lost reply, a report counts once, unless its number is 0. more means that
// work is left for Promote.
func (s *Store) ReportOutcomes(ctx context.Context, from Reporter, reports []Outcomes) (words []BreakerWord, more bool, err error) {
	if len(reports) > MaxReports {
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
			max(r.Ran, 0).Microseconds(), tenantsText(r.Tenants), errorsText(r.Errors))
	}
	guest := 0
	if from.Guest {
		guest = 1
	}
	args := append([]any{s.now, from.Name, guest, len(rules)}, rules...)
	reply, err := s.run(ctx, "breaker", append(args, tuples...)...)
	if err != nil {
		return nil, false, err
	}
	if len(reply) != 2+reportWords*len(reports) {
		return nil, false, fmt.Errorf("report outcomes: reply has %d words", len(reply))
	}
	words = make([]BreakerWord, len(reports))
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
func errorsText(all []CallError) string {
	var text strings.Builder
	for i, e := range all {
		if i == MaxCallErrors {
			break
		}
		fmt.Fprintf(&text, "%d\t%s\n", max(e.Count, 1), ErrorText(e.Text))
	}
	return text.String()
}

// ErrorText clips a text to one line of MaxErrorText bytes that can be shown: what is not printable is a space.
func ErrorText(text string) string {
	clipped := text[:min(len(text), MaxErrorText)]
	return strings.TrimSpace(strings.Map(func(r rune) rune {
		if r == unicode.ReplacementChar || !unicode.IsPrint(r) {
			return ' '
		}
		return r
	}, clipped))
}

// AddCallError puts an error before those that are known, the newest first, or adds it to those of its kind. What is beyond
// MaxCallErrors goes.
func AddCallError(all []CallError, e CallError) []CallError {
	e.Text = ErrorText(e.Text)
	kind := kindOf(e.Text)
	for i, known := range all {
		if kindOf(known.Text) == kind {
			e.Count += known.Count
			all = slices.Delete(all, i, i+1)
			break
		}
	}
	all = slices.Insert(all, 0, e)
	return all[:min(len(all), MaxCallErrors)]
}

// kindOf is a text without its numbers: ports, counts and identifiers differ from call to call.
func kindOf(text string) string {
	var kind []byte
	for _, c := range []byte(text) {
		digit := c >= '0' && c <= '9'
		if digit {
			c = '#'
		}
		if digit && len(kind) > 0 && kind[len(kind)-1] == '#' {
			continue
		}
		kind = append(kind, c)
	}
	return string(kind)
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

func parseWord(reply []string) (BreakerWord, error) {
	if reply[0] == "full" {
		return BreakerWord{For: -1, Full: true}, nil
	}
	word, forced := reply[0], reply[0] == "forced"
	if forced {
		word = breaker.Closed.String()
	}
	state, err := parseState(word)
	if err != nil {
		return BreakerWord{}, err
	}
	numbers, err := parseNumbers(reply[1] + " " + reply[2])
	if err == nil && len(numbers) != 2 {
		err = redisconn.ErrUnknownReply
	}
	if err != nil {
		return BreakerWord{}, err
	}
	return BreakerWord{State: state, Period: uint64(numbers[0]), For: time.Duration(numbers[1]) * time.Microsecond, Forced: forced}, nil
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
	return fmt.Sprintf("%s|%d|%d|%s|%d|%s|%d|%d|%s|%s|%s|%s", micros(c.Window), c.Buckets, c.MinCalls, ratio(c.FailureRate),
		c.FailureThreshold, ratio(c.SlowCallRate), c.SuccessThreshold, c.MaxProbes, micros(c.ProbeTimeout), micros(c.OpenBase),
		micros(c.OpenMax), micros(c.ResetAfter))
}
