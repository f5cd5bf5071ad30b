package memory

import (
	"context"
	"fmt"
	"slices"
	"sort"
	"time"

	"github.com/headgate/headgate/store"
)

// eventsPortion is how many transitions a call returns.
const eventsPortion = 100

// BreakerEvents waits for transitions of breakers after a position, as store.Partition.BreakerEvents.
func (p *Partition) BreakerEvents(ctx context.Context, after string, wait time.Duration) (events []store.BreakerEvent, position string, err error) {
	if after == "" {
		p.read(func(m *model, _ int64) { position = m.lastEvent() })
		return nil, position, nil
	}
	if !store.IsToken(after) {
		return nil, after, fmt.Errorf("read events: %q is no position", after)
	}
	position = after
	err = p.await(ctx, eventsTopic, wait, func(m *model, _ int64) bool {
		if events = m.eventsAfter(after); len(events) > 0 {
			position = events[len(events)-1].ID
		}
		return len(events) > 0
	})
	if err != nil {
		err = fmt.Errorf("read events: %w", err)
	}
	return events, position, err
}

// lastEvent is the position after all transitions.
func (m *model) lastEvent() string {
	if len(m.events) == 0 {
		return "0-0"
	}
	return m.events[len(m.events)-1].ID
}

func (m *model) eventsAfter(position string) []store.BreakerEvent {
	from := sort.Search(len(m.events), func(i int) bool { return tokenAfter(m.events[i].ID, position) })
	return slices.Clone(m.events[from:min(len(m.events), from+eventsPortion)])
}

// EventsFollowed returns up to which transition a follower has told, as store.Partition.EventsFollowed.
func (p *Partition) EventsFollowed(_ context.Context, follower string) (position string, err error) {
	p.read(func(m *model, _ int64) { position = m.told[follower] })
	return position, nil
}

// NoteEventsFollowed notes that position.
func (p *Partition) NoteEventsFollowed(_ context.Context, follower, position string) error {
	p.write(func(m *model, _ int64) { m.told[follower] = position })
	return nil
}

// eventReader is BreakerEvents for one goroutine.
type eventReader struct{ *Partition }

// NewEventReader returns a store.EventReader.
func (p *Partition) NewEventReader() store.EventReader { return eventReader{p} }

// Read is BreakerEvents. When ctx ends meanwhile it returns no events and no error.
func (r eventReader) Read(ctx context.Context, after string, wait time.Duration) (events []store.BreakerEvent, position string, err error) {
	events, position, err = r.BreakerEvents(ctx, after, wait)
	if ctx.Err() != nil {
		err = nil
	}
	return events, position, err
}

// Close implements store.EventReader.
func (eventReader) Close() error { return nil }
