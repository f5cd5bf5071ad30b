package redisstore

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/redisstore/internal/gates"
)

// balancer moves shares of what all partitions divide among them, caps of queues and downstreams and the rates of downstreams
// and of the global limit, to where they are used. Each partition has a fraction of each, and the fractions add up to 1 at most:
//
//	look, under a ballot, at what each partition has, uses and wants
//	lower the shares of those that are to have less, and wait for their word
//	raise others by what has become free: of a cap, by what no job above a lowered one still uses
//
// A partition heeds one ballot at a time, the one with the highest number that has looked at it. So whoever has looked knows what
// is there, and a word that an older ballot had sent comes too late, whenever it comes: the sum is never above the whole, whoever
// dies or is cut off between any two steps, and no clock decides. A word in doubt makes its sender begin another ballot. What was
// freed and never given is found by the next ballot that reaches all partitions; while one is away, the others exchange what they
// have among them. Shares have no end: without a Balancer they stay as they are, which is safe, and any process may be one.
//
// One goroutine is to call it.
type balancer struct {
	store   *many
	owner   string
	number  int64
	cursors []string
	// last is the bound up to which they were looked at in the step before.
	last string
}

// boundsAtOnce is how many bounds a step looks at; if there are more, the next one goes on.
const boundsAtOnce = 64

// NewBalancer implements Deployment.
func (d *many) NewBalancer() store.Balancer { return d.newBalancer() }

func (d *many) newBalancer() *balancer {
	return &balancer{store: d, owner: uuid.NewString(), number: 1, cursors: make([]string, len(d.parts))}
}

// Step implements Balancer.
func (b *balancer) Step(ctx context.Context) error {
	names, err := b.unbalanced(ctx)
	if len(names) == 0 {
		return err
	}
	r := round{bounds: names, at: make([][]gates.Portion, len(b.store.parts))}
	looks := make([][]gates.Setting, len(b.store.parts))
	for p := range looks {
		for _, name := range names {
			looks[p] = append(looks[p], gates.Setting{Bound: name})
		}
	}
	// One that cannot be looked at keeps what it has.
	failed := b.send(ctx, looks, func(p, i int, seen gates.Portion) { r.see(p, i, seen) })
	if errors.Is(failed, gates.ErrTaken) {
		return nil
	}
	moves := r.plan()
	for _, settings := range [][][]gates.Setting{r.lower(moves), nil} {
		if settings == nil {
			settings = r.raise(moves)
		}
		if err := b.send(ctx, settings, func(p, i int, seen gates.Portion) { r.see(p, r.indexOf(settings[p][i].Bound), seen) }); err != nil {
			b.number++ // What is on its way is not to be heeded any more.
			if errors.Is(err, gates.ErrTaken) {
				return failed
			}
			return err
		}
	}
	return failed
}

// Neglected implements Balancer.
func (b *balancer) Neglected(ctx context.Context, partition int, long time.Duration) bool {
	for cursor := "0"; ; {
		found, err := b.store.parts[partition].Unbalanced(ctx, cursor)
		if err != nil {
			return false
		}
		if len(found.Names) > 0 {
			return found.Since < 0 || found.Since > long || found.Owner == b.owner
		}
		if cursor = found.Next; cursor == "0" {
			return false
		}
	}
}

// unbalanced returns the bounds that a step is about, in order.
func (b *balancer) unbalanced(ctx context.Context) ([]string, error) {
	var mu sync.Mutex
	var names []string
	err := b.store.each(func(p int, part *Partition) error {
		cursor := b.cursors[p]
		if cursor == "" {
			cursor = "0"
		}
		found, err := part.Unbalanced(ctx, cursor)
		if err != nil {
			return err
		}
		b.cursors[p] = found.Next
		mu.Lock()
		names = append(names, found.Names...)
		mu.Unlock()
		return nil
	})
	slices.Sort(names)
	names = slices.Compact(names)
	if len(names) > boundsAtOnce {
		from, _ := slices.BinarySearch(names, b.last+"\x00")
		names = slices.Concat(names[from:], names[:from])[:boundsAtOnce]
		b.last = names[len(names)-1]
	}
	return names, err
}

// send makes a call to each partition for which there is a setting, side by side, and tells what each has then. The error joins
// those of all; one that is errTaken has made the ballot's number higher than the other's.
func (b *balancer) send(ctx context.Context, settings [][]gates.Setting, tell func(p, i int, seen gates.Portion)) error {
	var mu sync.Mutex
	number := b.number
	return b.store.each(func(p int, part *Partition) error {
		if len(settings[p]) == 0 {
			return nil
		}
		portions, taken, err := part.Share(ctx, number, b.owner, settings[p])
		mu.Lock()
		defer mu.Unlock()
		if errors.Is(err, gates.ErrTaken) {
			b.number = max(b.number, taken+1)
		}
		for i := range portions {
			tell(p, i, portions[i])
		}
		return err
	})
}
