package codec

import (
	"encoding/binary"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/buckets"
	"github.com/headgate/headgate/internal/redisconn"
	"github.com/headgate/headgate/store"
)

// enteredBytes are those of what is said of a job that is in, as admit.lua packs it: one that says where, and four doubles.
const enteredBytes = 1 + 4*8

// entered are the places of jobs that are in, by what says where less one.
var entered = [...]admission.Place{admission.PlaceReady, admission.PlaceLater, admission.PlaceSpilled, admission.PlaceWaiting}

// parseEntered reads what is said of a job that is in.
func parseEntered(v *admission.Verdict, packed string) {
	number := func(i int) int64 {
		return int64(math.Float64frombits(binary.LittleEndian.Uint64([]byte(packed[1+8*i : 9+8*i]))))
	}
	v.Decision, v.Place, v.Position = admission.Admitted, entered[packed[0]-1], int(number(0))
	if v.EstimatedWait = time.Duration(number(1)) * time.Microsecond; v.Place == admission.PlaceSpilled {
		v.EstimatedWait = -1
	}
	v.TokensLeft, v.Burst = admission.Tokens(number(2)), admission.Tokens(number(3))
}

// unmoved says why no more spilled jobs go to the second Redis, as fragments/spill.lua counts the reasons.
var unmoved = [...]string{
	"; those kept aside are on their way to the second Redis", "; nobody moves those kept aside to the second Redis",
	"; the second Redis is away or takes no more", "; the second Redis has as many as max_moved",
}

// ParseVerdict reads what a script says of a job or a question.
func ParseVerdict(line string, j *admission.Job) (admission.Verdict, error) {
	if rest, kept := strings.CutPrefix(line, "kept "); kept {
		v, err := ParseVerdict(rest, j)
		v.Detail = store.KeptDetail(v.Detail)
		return v, err
	}
	if rest, share := strings.CutPrefix(line, "bypass "); share {
		v, err := ParseVerdict(rest, j)
		v.Detail = store.ShareDetail(v.Detail)
		return v, err
	}
	if rest, ofType := strings.CutPrefix(line, "type "); ofType {
		return ParseVerdict(rest, &admission.Job{ID: j.ID, Tenant: j.Tenant, Queue: j.Queue, Priority: admission.OfType(j.Type)})
	}
	v := admission.Verdict{ID: j.ID}
	if rest, ok := strings.CutPrefix(line, "dropped "); ok {
		count, rest, _ := strings.Cut(rest, " ")
		dropped, err := strconv.Atoi(count)
		if err != nil {
			return v, fmt.Errorf("read verdict %q: %w", line, err)
		}
		v.Dropped, line = dropped, rest
	}
	if rest, ok := strings.CutPrefix(line, "bypassed "); ok {
		v.Bypassed, line = true, rest
	}
	if len(line) == enteredBytes && 0 < line[0] && int(line[0]) <= len(entered) {
		parseEntered(&v, line)
		return v, nil
	}
	word, rest, _ := strings.Cut(line, " ")
	switch word {
	case "duplicate":
		v.Decision = admission.Duplicate
		return v, nil
	case "dedup":
		v.Reason, v.RetryAfter = admission.ReasonDedup, store.RefusedRetry
		return v, nil
	case "queues":
		v.Reason, v.RetryAfter = admission.ReasonQueues, store.RefusedRetry
		if rest != "" {
			v.Detail = rest + " queues"
		}
		return v, nil
	case "deadline":
		v.Reason = admission.ReasonDeadline
		return v, nil
	case "memory":
		v.Reason, v.RetryAfter = admission.ReasonMemory, store.RefusedRetry
		return v, nil
	case "shed":
		v.Reason = admission.ReasonShed // How long to wait comes with the pressure.
		return v, nil
	case "gone":
		v.Reason = admission.ReasonGone
		return v, nil
	case "paused", "unique", "parked":
		return v, parseHeld(&v, word, rest)
	}
	var room [5]int64
	numbers, err := appendNumbers(room[:0], rest)
	if err != nil {
		return v, fmt.Errorf("read verdict %q: %w", line, err)
	}
	scope := func() admission.Scope {
		return admission.ScopeAt(admission.Level(numbers[0]), j.Tenant, j.Queue, j.Priority)
	}
	switch {
	case word == "granted" && len(numbers) == 3:
		v.Decision, v.Scope = admission.Admitted, scope()
		v.TokensLeft, v.Burst = admission.Tokens(numbers[1]), admission.Tokens(numbers[2])
	case word == "overflow" && len(numbers) == 2:
		v.Reason, v.RetryAfter = admission.ReasonOverflow, store.RefusedRetry
		v.Detail = fmt.Sprintf("%d jobs of %d bytes", numbers[0], numbers[1])
	case word == "overflow" && len(numbers) == 3 && numbers[2] >= 0 && numbers[2] < int64(len(unmoved)):
		v.Reason, v.RetryAfter = admission.ReasonOverflow, store.RefusedRetry
		v.Detail = fmt.Sprintf("%d jobs of %d bytes%s", numbers[0], numbers[1], unmoved[numbers[2]])
	case (word == "full" || word == "share") && len(numbers) == 2:
		v.Reason, v.Scope, v.RetryAfter = admission.ReasonOverflow, admission.ScopeAt(admission.LevelTenant, j.Tenant, "", ""), store.RefusedRetry
		if word == "share" {
			v.Reason = admission.ReasonMemory
		}
		v.Detail = fmt.Sprintf("%d jobs of %d bytes", numbers[0], numbers[1])
	case word == "uniques" && len(numbers) == 1:
		v.Reason, v.Scope, v.RetryAfter = admission.ReasonOverflow, admission.ScopeAt(admission.LevelTenant, j.Tenant, "", ""), store.UniquesRetry
		v.Detail = fmt.Sprintf("%d unique keys that stay", numbers[0])
	case word == "lanes" && len(numbers) == 1:
		v.Reason, v.RetryAfter, v.Detail = admission.ReasonLanes, store.RefusedRetry, fmt.Sprintf("%d lanes", numbers[0])
	case word == "doomed" && len(numbers) == 2:
		v = store.DoomedVerdict(j.ID, numbers[0], numbers[1])
	case word == "huge" && len(numbers) == 1:
		v.Reason, v.Detail = admission.ReasonTooLarge, fmt.Sprintf("%d bytes", numbers[0])
	case word == "limited" && len(numbers) == 4:
		v.Reason, v.Scope = admission.ReasonLimited, scope()
		v.TokensLeft = buckets.Micro(numbers[1]).Tokens() // Rounded down, below zero too.
		v.RetryAfter = time.Duration(numbers[2]) * time.Microsecond
		v.Burst = admission.Tokens(numbers[3] / microsPerToken)
	case word == "limited" && len(numbers) == 6: // It is scaled.
		scale := buckets.Scaling{Part: float64(numbers[4]) / 1e6, Until: buckets.Instant(numbers[5])}
		v.Reason, v.Scope, v.Detail = admission.ReasonLimited, scope(), scale.Words()
		v.TokensLeft, v.Burst = buckets.Micro(numbers[1]).Tokens(), admission.Tokens(numbers[3]/microsPerToken)
		v.RetryAfter = time.Duration(numbers[2]) * time.Microsecond
	case word == "costly" && len(numbers) == 2:
		v.Reason, v.Scope, v.Burst = admission.ReasonTooCostly, scope(), admission.Tokens(numbers[1]/microsPerToken)
	case word == "buckets" && len(numbers) == 1:
		v.Reason, v.Scope, v.RetryAfter = admission.ReasonBuckets, scope(), store.RefusedRetry
	default:
		return v, fmt.Errorf("read verdict %q: %w", line, redisconn.ErrUnknownReply)
	}
	return v, nil
}

// parseHeld reads the refusals that name who stands in the way.
func parseHeld(v *admission.Verdict, word, rest string) error {
	wait, text, _ := strings.Cut(rest, " ")
	us, err := strconv.ParseInt(wait, 10, 64)
	if err != nil {
		return fmt.Errorf("read verdict %q: %w", word+" "+rest, err)
	}
	v.RetryAfter = store.RefusedRetry
	if us >= 0 {
		v.RetryAfter = time.Duration(us) * time.Microsecond
	}
	switch word {
	case "paused":
		v.Reason, v.Detail = admission.ReasonPaused, text
		return nil
	case "parked":
		_, downstream, _ := strings.Cut(text, " ")
		v.Reason, v.Detail = admission.ReasonBreaker, "downstream "+downstream // How many jobs of others wait is theirs.
		return nil
	}
	holder, err := store.DecodeKey(text)
	v.Reason, v.Detail = admission.ReasonUnique, holder.ID
	return err
}

// ParsePressure reads what a script tells of a queue that is measured: level, score in thousandths and hint in microseconds.
func ParsePressure(text string) (admission.Pressure, error) {
	n, err := ParseNumbers(text)
	if err == nil && len(n) != 3 {
		err = redisconn.ErrUnknownReply
	}
	if err != nil {
		return admission.Pressure{}, fmt.Errorf("read pressure %q: %w", text, err)
	}
	return admission.Pressure{Level: admission.PressureLevel(n[0]), Score: float64(n[1]) / 1000, RetryAfter: time.Duration(n[2]) * time.Microsecond}, nil
}

// ParsePressureState reads what the state has of such a queue.
func ParsePressureState(text string) (*store.PressureState, error) {
	parts := strings.SplitN(text, "|", 6)
	if len(parts) < 6 {
		return nil, fmt.Errorf("read pressure %q: %w", text, redisconn.ErrUnknownReply)
	}
	p, err := ParsePressure(parts[0] + " " + parts[1] + " " + parts[3])
	if err != nil {
		return nil, err
	}
	state := &store.PressureState{Pressure: p, Parts: parts[5]}
	us, err := strconv.ParseInt(parts[2], 10, 64)
	if us > 0 {
		state.Until = time.UnixMicro(us)
	}
	return state, err
}
