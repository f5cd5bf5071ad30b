package worker

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/store"
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
// producer.Producer.Result reads it. It goes when another job of its id is let in. After any other answer of the handler it is dropped. The last call counts. The
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

// SetCost tells what the job whose handler's ctx this is has cost in truth, 0 to headgate.MaxActualCost tokens; its Cost was an estimate, which
// was reserved when it entered. It counts with the run that ends the job, by nil or as a dead letter: then, in the same call to Redis, what was
// not needed goes back to the limits on the job's way, as far as they would have room for it, and what is lacking is taken, up to one burst
// below zero, which is refilled before they admit anything again. A run after which the job comes back counts for nothing, and one that does
// not tell leaves the reservation as it is. The last call counts. The error is a *headgate.FieldError, or matches ErrNoJob. Several goroutines
// may call it.
func SetCost(ctx context.Context, actual admission.Tokens) error {
	r, ok := ctx.Value(resultKey{}).(*result)
	if !ok {
		return ErrNoJob
	}
	if err := admission.ValidateActualCost(actual); err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.mu.cost, r.mu.told = actual, true
	return nil
}

// Pushback tells that the downstream of the job whose handler's ctx this is has asked for less: by a level, PressureLow to PressureCritical, and
// for how long, 0 to MaxPushback. Where the policy lets the downstream's dispatch move (adaptive), all workers together dispatch four fifths, a half,
// a fifth or next to nothing of it, from within a second on, for as long and two seconds at least; then it comes back by steps. Elsewhere, and where
// the job has no downstream, it does nothing. PressureNone is no push. The strongest of a run counts, whatever the handler returns. The error is
// a *headgate.FieldError for each bad argument, or matches ErrNoJob. Several goroutines may call it.
func Pushback(ctx context.Context, level admission.PressureLevel, d time.Duration) error {
	r, ok := ctx.Value(resultKey{}).(*result)
	if !ok {
		return ErrNoJob
	}
	if err := ValidatePushback(level, d); err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if level > admission.PressureNone {
		r.mu.push, r.mu.pushFor = max(r.mu.push, level), max(r.mu.pushFor, d)
	}
	return nil
}

// MaxPushback is for how long a downstream may ask for less at a time.
const MaxPushback = time.Hour

// ValidatePushback returns what Pushback says of bad arguments.
func ValidatePushback(level admission.PressureLevel, d time.Duration) error {
	var bad []error
	if level < admission.PressureNone || level > admission.PressureCritical {
		bad = append(bad, &admission.FieldError{Field: "level", Value: strconv.Itoa(int(level)), Allowed: "PressureNone to PressureCritical, 1 to 5"})
	}
	if d < 0 || d > MaxPushback {
		bad = append(bad, &admission.FieldError{Field: "pushback", Value: d.String(), Allowed: "0 to 1h"})
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
		cost admission.Tokens
		told bool // that cost is
		// push and pushFor are how much the downstream asked for less, and for how long.
		push    admission.PressureLevel
		pushFor time.Duration
	}
}

// spent returns what the job has cost, nil where nobody has told.
func (r *result) spent() *store.Spent {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.mu.told {
		return nil
	}
	return &store.Spent{Cost: r.mu.cost}
}

// pushed returns what Pushback was told.
func (r *result) pushed() (level admission.PressureLevel, d time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.mu.push, r.mu.pushFor
}

func (r *result) get() (data []byte, keep time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.mu.data, r.mu.keep
}
