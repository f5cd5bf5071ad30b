package sessions

import (
	"cmp"
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/store"
)

// leased is a job that a session holds in a partition.
type leased struct {
	store.Lease

	part  store.Partition
	index int
}

// name names the lease among those of all partitions.
func (l *leased) name() string { return strconv.Itoa(l.index) + "-" + l.Token }

// began is when the lease was given, by the clock of its partition.
func (l *leased) began() time.Time {
	ms, _, _ := strings.Cut(l.Token, "-")
	at, _ := strconv.ParseInt(ms, 10, 64) // A token begins with a time.
	return time.UnixMilli(at)
}

// tokenOf is what a client calls a lease: where there are several partitions, with the number of its own at the end, since two may
// give the same token.
func (a *Sessions) tokenOf(index int, token string) string {
	if len(a.parts) == 1 {
		return token
	}
	return token + "-" + strconv.Itoa(index)
}

// heldBy returns the lease that a session has by a token of tokenOf, else headgate.ErrLeaseLost.
func (a *Sessions) heldBy(ctx context.Context, s session, token string, key admission.Key) (*leased, error) {
	l := &leased{index: a.config.Store.PartitionOf(key.Tenant)}
	l.part = a.parts[l.index]
	own, ok := strings.CutSuffix(token, a.tokenOf(l.index, ""))
	if !ok {
		return nil, admission.ErrLeaseLost
	}
	var err error
	l.Lease, err = l.part.Held(ctx, s.pool, s.worker, own, key)
	return l, err
}

// sweepEvery is how often a session that waits looks at several partitions: to wait for one is to miss the others.
const sweepEvery = 50 * time.Millisecond

// take reads up to count jobs for a session from the partitions of some indexes, waiting for the first. away says that one of
// them gave no answer though another did.
func (a *Sessions) take(ctx context.Context, s session, from []int, count int, wait time.Duration, held bool) (leases []leased, away bool, err error) {
	if len(a.parts) == 1 {
		leases, err = a.takeFrom(ctx, s, 0, count, wait, held)
		return leases, false, err
	}
	for end := time.Now().Add(wait); ; {
		if !held {
			a.shareSlots(ctx, s)
		}
		leases, away, err = a.sweep(ctx, s, from, count, held)
		left := time.Until(end)
		if err != nil || len(leases) > 0 || held || left <= 0 {
			return leases, away, err
		}
		pause := time.NewTimer(min(sweepEvery, left))
		select {
		case <-pause.C:
		case <-ctx.Done():
			pause.Stop()
			return nil, away, context.Cause(ctx)
		}
	}
}

// sweep reads what is there, from one partition after the other. A session that takes fewer jobs than it has slots would be unfair
// if it took them anywhere, so lots decide the order, and each partition has as many as it has slots.
func (a *Sessions) sweep(ctx context.Context, s session, from []int, count int, held bool) (leases []leased, away bool, err error) {
	var errs []error
	for _, index := range byLot(from, a.shares.of(s.worker).slots.Load()) {
		found, err := a.takeFrom(ctx, s, index, count-len(leases), -1, held)
		leases = append(leases, found...)
		switch {
		case errors.Is(err, admission.ErrLeaseLost):
			return nil, false, err
		case err != nil:
			errs = append(errs, err)
		}
		if len(leases) == count {
			break
		}
	}
	if len(errs) == len(from) {
		return nil, true, errors.Join(errs...)
	}
	return leases, len(errs) > 0, nil
}

// byLot puts partitions into a random order. The chance of each to be the first of those that are left is as its slots, nil
// where nobody knows.
func byLot(from []int, slots *[]int) []int {
	times := make(map[int]float64, len(from)) // The first of several exponential times is each one's with a chance as its rate.
	for _, index := range from {
		rate := 1.0
		if slots != nil {
			rate = float64((*slots)[index])
		}
		times[index] = rand.ExpFloat64() / rate
	}
	return slices.SortedFunc(slices.Values(from), func(one, other int) int { return cmp.Compare(times[one], times[other]) })
}

// takeFrom reads from one partition.
func (a *Sessions) takeFrom(ctx context.Context, s session, index, count int, wait time.Duration, held bool) ([]leased, error) {
	part := a.parts[index]
	found, err := part.Read(ctx, s.worker, s.pool, count, wait, held)
	if errors.Is(err, store.ErrPoolGone) {
		err = admission.ErrLeaseLost
	}
	leases := make([]leased, len(found))
	for i, l := range found {
		leases[i] = leased{l, part, index}
	}
	return leases, err
}
