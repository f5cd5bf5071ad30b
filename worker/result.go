package worker

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/headgate/headgate/admission"
)

// Bounds of a result.
const (
	// MaxResult is the largest result of a job, in bytes.
	MaxResult = 64 << 10
	// MinKeepResult and MaxKeepResult bound how long a result is kept.
	MinKeepResult = time.Second
	MaxKeepResult = 30 * 24 * time.Hour
)

// ErrNoJob means that a ctx is not a handler's.
var ErrNoJob = errors.New("not the ctx of a handler")

// SetResult leaves data, up to MaxResult bytes, as the result of the job whose handler's ctx this is. When the handler
// returns nil it is stored together with the job's completion and kept for keep, MinKeepResult to MaxKeepResult;
// producer.Producer.Result reads it. After any other answer of the handler it is dropped. The last call counts. The
// error is a *headgate.FieldError for each bad argument, or matches ErrNoJob. Several goroutines may call it.
func SetResult(ctx context.Context, data []byte, keep time.Duration) error {
	r, ok := ctx.Value(resultKey{}).(*result)
	if !ok {
		return ErrNoJob
	}
	if err := ValidateResult(data, keep); err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.mu.data, r.mu.keep = slices.Clone(data), keep
	return nil
}

// ValidateResult returns what SetResult says of bad arguments.
func ValidateResult(data []byte, keep time.Duration) error {
	var bad []error
	if len(data) > MaxResult {
		bad = append(bad, &admission.FieldError{Field: "result", Value: strconv.Itoa(len(data)) + " bytes", Allowed: "0 to 65536 bytes"})
	}
	if keep < MinKeepResult || keep > MaxKeepResult {
		bad = append(bad, &admission.FieldError{Field: "keep", Value: keep.String(), Allowed: "1s to 720h"})
	}
	return errors.Join(bad...)
}

type resultKey struct{}

// result is what one run of a handler leaves behind.
type result struct {
	mu struct {
		sync.Mutex
		data []byte
		keep time.Duration // zero while there is none
	}
}

func (r *result) get() (data []byte, keep time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.mu.data, r.mu.keep
}
