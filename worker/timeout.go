package worker

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/worker/internal/fleet"
)

// timeoutError is the cause with which a handler's ctx ends when it may run no longer. It matches context.DeadlineExceeded.
type timeoutError struct {
	after time.Duration
	// by is what said so, in the words of the configuration.
	by string
}

func (e *timeoutError) Error() string { return fmt.Sprintf("cut after %s by %s", e.after, e.by) }
func (e *timeoutError) Unwrap() error { return context.DeadlineExceeded }

// timeout returns how long a job's handler may run, and who says so: the most particular, and that of a probe if that is shorter.
func (s *session) timeout(job *admission.Job, call *fleet.GuardedCall) *timeoutError {
	config := &s.w.config
	cut := &timeoutError{config.DefaultTimeout, "the worker's time-out"}
	switch own := cmp.Or(call.Timeout(), config.CallTimeouts[job.Service()]); {
	case job.Timeout > 0:
		cut = &timeoutError{job.Timeout, "the time-out of the job"}
	case job.Downstream == "":
	case own > 0:
		cut = &timeoutError{own, "call_timeout of downstream " + job.Service()}
	case config.CallTimeout != config.DefaultTimeout:
		cut = &timeoutError{config.CallTimeout, "call_timeout of any downstream, here " + job.Service()}
	}
	if most := call.MostTime(); most > 0 && most < cut.after {
		cut = &timeoutError{most, "probe_timeout of downstream " + job.Service()}
	}
	return cut
}

// explain says in a handler's error what cut it short, since most say only that a deadline was exceeded.
func (e *timeoutError) explain(ctx context.Context, err error) error {
	if err == nil || context.Cause(ctx) != error(e) || errors.Is(err, e) { //nolint:errorlint // this very one
		return err
	}
	return &cutError{e, err}
}

// cutError is the error of a handler that was cut short.
type cutError struct{ cut, err error }

func (e *cutError) Error() string { return e.cut.Error() + ": " + e.err.Error() }
func (e *cutError) Unwrap() error { return e.err }
