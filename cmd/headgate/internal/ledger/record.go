package ledger

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/headgate/headgate/admission"
)

// Job is what is known of a job before it is enqueued.
type Job struct {
	Tenant     string
	Class      admission.Priority
	Downstream string
	Cost       admission.Tokens
}

// Token is an entry's id in a ready stream.
type Token struct {
	Millis, Seq int64
}

// ParseToken reads "ms-seq".
func ParseToken(text string) (Token, error) {
	millis, seq, ok := strings.Cut(text, "-")
	var t Token
	var err error
	if !ok {
		return t, fmt.Errorf("read token %q: no '-'", text)
	}
	if t.Millis, err = strconv.ParseInt(millis, 10, 64); err != nil {
		return t, fmt.Errorf("read token %q: %w", text, err)
	}
	if t.Seq, err = strconv.ParseInt(seq, 10, 64); err != nil {
		return t, fmt.Errorf("read token %q: %w", text, err)
	}
	return t, nil
}

// Compare orders tokens as Redis gave them out.
func (t Token) Compare(other Token) int {
	return cmp.Or(cmp.Compare(t.Millis, other.Millis), cmp.Compare(t.Seq, other.Seq))
}

// none is the place of a job that was not dispatched.
const none = -1

// record is one job's page. Times of Redis are in milliseconds, as tokens are.
type record struct {
	Job
	asked   time.Time
	verdict admission.Verdict
	decided bool
	arrival int64 // of the admission by Redis; 0 before the first start
	ran     Token // of the delivery that started the handler first
	started time.Time
	wait    time.Duration
	// failures counts the failed runs, burnt those of them that burnt an attempt.
	failures, burnt int
	// spared says that the job was a failed probe and has not come back since.
	spared bool

	// first and ranAt are places in the sorted log, of the first delivery and of the one that started the handler; filled in by the figures.
	first, ranAt int
}

func (r *record) admitted() bool { return r.decided && r.verdict.Decision == admission.Admitted }

// straight reports whether the job passed to a worker in the call that admitted it.
func (r *record) straight() bool { return r.admitted() && r.verdict.Position == 0 }

func (r *record) hasStarted() bool { return !r.started.IsZero() }

// delivery is one entry of a ready stream.
type delivery struct {
	token Token
	job   int
}
