package crash_test

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/producer"
)

const (
	// partCallers times partPace is the load of a partsRole in each partition.
	partCallers = 2
	partPace    = 5 * time.Millisecond
	// What a call that failed is put down as.
	kindUnavailable = "unavailable"
	kindUnknown     = "unknown"
)

// produceInParts asks for jobs until ctx ends, each until it is decided, with callers of their own for each partition: one that is
// away keeps nobody from the others.
func (p *player) produceInParts(ctx context.Context) error {
	sdk, err := producer.New(p.store, producer.Config{})
	if err != nil {
		return err
	}
	var running sync.WaitGroup
	for partition := range p.store.Partitions() {
		for caller := range partCallers {
			running.Go(func() { p.produceInPart(ctx, sdk, partition, caller) })
		}
	}
	running.Wait()
	return nil
}

// produceInPart sends one tenant's jobs until its limit refuses one, then another's.
func (p *player) produceInPart(ctx context.Context, sdk *producer.Producer, partition, caller int) {
	tenant := ""
	for n, names := 0, 0; wait(ctx, partPace) == nil; n++ {
		for tenant == "" || p.store.PartitionOf(tenant) != partition {
			tenant = fmt.Sprintf("t%d-%d-%d-%d", p.number, partition, caller, names)
			names++
		}
		job := admission.NewJob(tenant, stormQueues[n%2].Queue, "work", []byte("0 5 done"))
		job.ID = "j" + strconv.Itoa(n)
		if !p.decideInPart(ctx, sdk, job) {
			tenant = ""
		}
	}
}

// decideInPart reports whether a job was let in.
func (p *player) decideInPart(ctx context.Context, sdk *producer.Producer, job admission.Job) bool {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), resendFor) // A job that was sent is decided.
	defer cancel()
	for {
		began := nanos()
		verdict, err := sdk.Enqueue(ctx, job)
		told := nanos()
		switch {
		case err == nil:
			p.book.note("A", began, told, admission.Key{Tenant: job.Tenant, ID: job.ID}, verdict.Unreplicated)
			return true
		case errors.Is(err, admission.ErrLimited):
			return false
		case errors.Is(err, admission.ErrOverflow): // It waits for room.
		case errors.Is(err, admission.ErrUnavailable):
			p.book.note("E", began, told, kindUnavailable)
		case errors.Is(err, admission.ErrOutcomeUnknown):
			p.book.note("E", began, told, kindUnknown)
		default:
			p.book.note("E", began, told, strings.ReplaceAll(err.Error(), " ", "-"))
		}
		if wait(ctx, 20*time.Millisecond) != nil {
			return false
		}
	}
}
