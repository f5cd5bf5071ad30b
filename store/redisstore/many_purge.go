package redisstore

import (
	"context"
	"errors"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/store"
)

// PurgeQueue cancels a page of the live jobs of a queue, from a cursor on that is empty at first. Calls with the same Act are one
// entry of the audit. Work that it leaves is left to the schedulers.
func (s *Partition) PurgeQueue(ctx context.Context, queue, cursor string, by store.Intervention) (store.PurgedPage, error) {
	return purgeQueue(ctx, s, func(string) *Partition { return s }, queue, cursor, by)
}

// purgeQueue cancels a page of what of lists, each job in the partition of its tenant.
func purgeQueue(ctx context.Context, of store.Looking, home func(tenant string) *Partition, queue, cursor string, by store.Intervention) (store.PurgedPage, error) {
	by = by.Named()
	page, err := of.List(ctx, store.ListQuery{Queue: queue, Limit: store.PurgePage, Cursor: cursor})
	if err != nil {
		return store.PurgedPage{}, err
	}
	done := store.PurgedPage{Cursor: page.Cursor}
	for _, job := range page.Jobs {
		running, _, err := home(job.Key.Tenant).CancelAs(ctx, job.Key, store.AuditPurgeQueue, string(store.QueueGate(queue)), by)
		switch {
		case errors.Is(err, admission.ErrUnknownJob), errors.Is(err, admission.ErrEnded): // It has left by itself, or is a dead letter.
		case err != nil:
			return done, err
		case running:
			done.Cancelling++
		default:
			done.Cancelled++
		}
	}
	return done, nil
}
